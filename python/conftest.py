"""Fixtures shared by tests and doctests."""

import signal
from pathlib import Path

import pytest

# Background jobs of a script ignore interrupts, and so does everything they start: tests of interrupts would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctest_namespace: dict[str, object]) -> None:
    """Runs each test in its own folder, which doctests know as `tmp`."""
    monkeypatch.chdir(tmp_path)
    doctest_namespace["tmp"] = tmp_path
