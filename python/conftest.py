"""What tests and doctests share."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctest_namespace: dict[str, object]) -> None:
    """Tests run in a folder of their own, which doctests know as `tmp`."""
    monkeypatch.chdir(tmp_path)
    doctest_namespace["tmp"] = tmp_path
