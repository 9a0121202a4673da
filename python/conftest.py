"""What tests and doctests share."""

import signal
from pathlib import Path

import pytest

# In the background of a script interrupts are ignored, by all that is started there too: tests of interrupts would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctest_namespace: dict[str, object]) -> None:
    """Tests run in a folder of their own, which doctests know as `tmp`."""
    monkeypatch.chdir(tmp_path)
    doctest_namespace["tmp"] = tmp_path
