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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a test whose agents are processes, each with one thread of PyTorch."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path
