"""A crash at every file operation of a fixed workload, and runs without one of the fsyncs.

A first run counts the file operations that change the disk; then the workload is repeated with a
crash at the first, second, third … of them, while starting and stopping too. A read needs no crash
of its own: what the disk holds and what clients know is the same as at the next change.

`without_sync` shows whether the workload notices that one place of the source does not sync.

Kafka: none; after SQLite's and TigerBeetle's crash tests.
"""

from __future__ import annotations

import linecache
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.testing import disk
from tests.simulation.nodes.model import InvariantViolated
from tests.simulation.nodes.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SWEEP_STEPS = 16
_SYNCS = (
    (disk.SimulatedFile, "sync"),
    (disk.SimulatedOpenDirectory, "sync_file"),
    (disk.SimulatedOpenDirectory, "sync"),
    (disk.SimulatedDisk, "sync"),
    (disk.SimulatedDisk, "write_file_atomically"),
)
"""The calls by which the node makes something durable."""


def operation_count(seed: int) -> int:
    """Return how many file operations change the disk in the workload of a sweep."""
    return _workload(seed, 0, power=True).run().simulation.disk.calls


def crash_at(seed: int, operation: int, *, power: bool) -> Workload:
    """Run the workload of a sweep with a crash at this file operation, and check it."""
    workload = _workload(seed, operation, power=power).run()
    workload.check(workload.crash_count, f"no crash at operation {operation}")
    return workload


def _workload(seed: int, operation: int, *, power: bool) -> Workload:
    return Workload(
        seed,
        steps=SWEEP_STEPS,
        crash_probability=0,
        power_probability=float(power),
        rot_probability=0,
        rot_at_start_probability=0,
        crash_at=operation,
    )


def sync_places(seed: int) -> set[str]:
    """Return the places of the source that sync files in a workload: function and line."""
    found: set[str] = set()

    def note(place: str) -> bool:
        found.add(place)
        return False

    with _syncs(note):
        Workload(seed).run()
    return found


@contextmanager
def without_sync(place: str) -> Iterator[None]:
    """Let the syncs of one place do nothing."""
    with _syncs(lambda called: called == place):
        yield


def is_noticed(place: str, seed: int) -> bool:
    """Whether a workload with power cuts breaks a promise when a place does not sync."""
    try:
        with without_sync(place):
            Workload(
                seed, power_probability=1.0, rot_probability=0, rot_at_start_probability=0
            ).run()
    except InvariantViolated:
        return True
    return False


def is_noticed_at(place: str, operation: int) -> bool:
    """Whether a power cut at a file operation of a sweep shows that a place does not sync."""
    try:
        with without_sync(place):
            crash_at(0, operation, power=True)
    except InvariantViolated:
        return True
    return False


@contextmanager
def _syncs(skips: Any) -> Iterator[None]:
    """Ask `skips` about the place of every sync; it does nothing where that is true."""
    saved = [(owner, name, getattr(owner, name)) for owner, name in _SYNCS]
    try:
        for owner, name, call in saved:
            setattr(owner, name, _asking(call, skips, name))
        yield
    finally:
        for owner, name, call in saved:
            setattr(owner, name, call)


def _place(frame: FrameType) -> str:
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return f"{frame.f_code.co_qualname}: {text.partition('#')[0].strip()}"


def _asking(call: Any, skips: Any, name: str) -> Any:
    def asked(self: Any, *args: Any, **options: Any) -> None:
        frame = sys._getframe(1)
        if frame.f_code.co_filename == disk.__file__ or not options.get("sync", True):
            call(self, *args, **options)  # part of a call that was asked about, or no sync
        elif skips(_place(frame)):
            if name == "write_file_atomically":
                call(self, *args, **{**options, "sync": False})
        else:
            call(self, *args, **options)

    return asked
