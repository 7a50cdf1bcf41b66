"""A crash at every file operation of a backup and of a restore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.backup.backup import Backup
from ottla.backup.manifest import read_backups
from ottla.backup.restore import RestoreRequest, restore
from ottla.backup.store import DirectoryStore
from ottla.branches.fork_point import ForkPoint
from tests.branches.crashes import Below, disk_at, sweep
from tests.storage.logs import NOW_MS
from tests.verification.damages import find, sample, serve

if TYPE_CHECKING:
    from ottla.testing.disk import SimulatedDisk

FILES = sample()


def _place(disk: SimulatedDisk) -> DirectoryStore:
    below: Any = Below(disk, "place")
    return DirectoryStore(below)


def _back_up(disk: SimulatedDisk) -> None:
    below: Any = Below(disk, "source")
    Backup(below, _place(disk), now_ms=NOW_MS).run()


def _restore(disk: SimulatedDisk) -> None:
    restore(disk, _place(disk), RestoreRequest("made", ForkPoint()), now_ms=NOW_MS)


def _check_made(disk: SimulatedDisk, expected: object) -> None:
    below: Any = Below(disk, "made")
    assert find(below) == []
    assert serve(below) == expected


def _with_place(seed: int) -> SimulatedDisk:
    disk = disk_at(FILES, "source", seed)
    disk.make("place")
    disk.sync()
    return disk


def _backed_up(seed: int) -> SimulatedDisk:
    disk = _with_place(seed)
    _back_up(disk)
    return disk


def _expected() -> object:
    disk = _backed_up(0)
    _restore(disk)
    below: Any = Below(disk, "made")
    return serve(below)


def test_a_crash_at_every_operation_of_a_backup() -> None:
    """There is a whole backup or none, and the next attempt succeeds."""
    expected = _expected()

    def check(disk: SimulatedDisk) -> None:
        if not read_backups(_place(disk)):
            _back_up(disk)
        _restore(disk)
        _check_made(disk, expected)

    assert sweep(_with_place, _back_up, check) > 100


def test_a_crash_at_every_operation_of_a_restore() -> None:
    """The directory is whole or not there, and the next attempt goes on."""
    expected = _expected()

    def check(disk: SimulatedDisk) -> None:
        if not disk.exists("made"):
            _restore(disk)
        _check_made(disk, expected)

    assert sweep(_backed_up, _restore, check) > 100
