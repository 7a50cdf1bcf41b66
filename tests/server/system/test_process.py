"""What is asked of the system for this process."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.server.system import process

if TYPE_CHECKING:
    import pytest


def test_glibc_keeps_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thresholds of trimming and of separate mappings exceed the buffers of a large batch."""
    options: dict[int, int] = {}
    library = SimpleNamespace(mallopt=options.__setitem__)
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: library)
    process.keep_freed_memory()
    assert options == {-1: 8 << 20, -3: 4 << 20}


def test_other_allocators_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A C library without mallopt is no error, nor is none at all."""

    def missing(_name: Any) -> Any:
        raise OSError("no such library")

    for library in (lambda _name: SimpleNamespace(), missing):
        monkeypatch.setattr(ctypes, "CDLL", library)
        process.keep_freed_memory()
