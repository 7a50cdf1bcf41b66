"""A crash at every file operation of a piece of work, on a simulated disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ottla.testing.disk import SimulatedCrash, SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable

STEP = int(os.environ.get("OTTLA_CRASH_STEP", "89"))
"""1 for every operation, as CI does by `scripts/simulate --crashes`."""
_TWO_PATHS = ("rename", "link")


class Below:
    """A directory of a simulated disk as a root of its own."""

    def __init__(self, disk: SimulatedDisk, prefix: str) -> None:
        self._disk = disk
        self._prefix = prefix
        self.volume = disk.volume

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._disk, name)

        def call(*arguments: Any, **more: Any) -> Any:
            path, *rest = arguments or ("",)
            if name in _TWO_PATHS:
                rest = [f"{self._prefix}/{one}" for one in rest]
            return method(f"{self._prefix}/{path}" if path else self._prefix, *rest, **more)

        return call


def disk_at(files: dict[str, bytes], prefix: str, seed: int = 0) -> SimulatedDisk:
    """Return a disk that durably has these files in a directory."""
    disk = SimulatedDisk(seed)
    disk.make(prefix)
    for path, data in files.items():
        whole = f"{prefix}/{path}"
        disk.make(whole.rpartition("/")[0])
        disk.write_file_atomically(whole, data)
    disk.sync(prefix)
    disk.sync()
    return disk


def sweep(
    new_disk: Callable[[int], SimulatedDisk],
    work: Callable[[SimulatedDisk], object],
    check: Callable[[SimulatedDisk], None],
) -> int:
    """Crash at each operation of the work in turn, or every STEP-th, and check the disk after it.

    Power cuts and kills alternate. Returns how many operations there are.
    """
    disk = new_disk(0)
    first = disk.calls
    work(disk)
    count = disk.calls - first
    numbers = range(0, count, STEP)
    for number in numbers:
        disk = new_disk(number)
        disk.crash_at(disk.calls + number + 1)
        try:
            work(disk)
        except SimulatedCrash:
            pass
        else:
            raise AssertionError(f"operation {number} did not take place")
        if number // STEP % 2:
            disk.kill()
        else:
            disk.crash()
        check(disk)
    print(f" {len(numbers)} crashes at {count} operations")
    return count
