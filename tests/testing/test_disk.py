"""The simulated disk forgets what it may forget and nothing else."""

from __future__ import annotations

import errno

import pytest

from ottla.testing.disk import SimulatedCrash, SimulatedDisk


def _outcomes(seeds: int = 200) -> set[bytes]:
    found = set()
    for seed in range(seeds):
        disk = SimulatedDisk(seed)
        file = disk.open("a", create=True)
        file.append([b"kept"])
        file.sync()
        disk.sync()
        file.append([b"1111"])
        file.append([b"2222"])
        disk.crash()
        found.add(disk.read_file("a"))
    return found


def test_synced_bytes_survive_every_crash() -> None:
    """What was synced, with its name, is there after every crash."""
    assert all(content.startswith(b"kept") for content in _outcomes())


def test_unsynced_bytes_are_lost_torn_and_reordered() -> None:
    """All of it may be there, none, a part, or the second write without the first."""
    found = _outcomes()
    assert b"kept" in found
    assert b"kept11112222" in found
    assert any(b"kept1111" < content < b"kept11112222" for content in found)
    assert b"kept\0\0\0\x002222" in found


def test_an_unsynced_name_may_be_lost_with_its_content() -> None:
    """A synced file whose directory was not synced may be gone."""
    names = set()
    for seed in range(50):
        disk = SimulatedDisk(seed)
        file = disk.open("a", create=True)
        file.append([b"x"])
        file.sync()
        disk.crash()
        names.add(tuple(disk.list()))
    assert names == {(), ("a",)}


def test_a_rename_is_atomic_across_a_crash() -> None:
    """Exactly one of the two names is there after a crash."""
    for seed in range(100):
        disk = SimulatedDisk(seed)
        disk.open("a", create=True)
        disk.sync()
        disk.rename("a", "b")
        disk.crash()
        assert disk.list() in (["a"], ["b"])


def test_atomic_writes_leave_the_old_or_the_new_content() -> None:
    """A crash at any call of an atomic write leaves one of the two contents, whole."""
    disk = SimulatedDisk()
    disk.write_file_atomically("f", b"old")
    start = disk.calls
    disk.write_file_atomically("f", b"new")
    calls = disk.calls - start
    for seed in range(30):
        for number in range(1, calls + 1):
            disk = SimulatedDisk(seed)
            disk.write_file_atomically("f", b"old")
            disk.crash_at(disk.calls + number)
            with pytest.raises(SimulatedCrash):
                disk.write_file_atomically("f", b"new")
            disk.crash()
            assert disk.read_file("f") in (b"old", b"new")


def test_without_sync_an_atomic_write_may_be_broken() -> None:
    """The unsynced variant is allowed to leave a torn file: callers must expect it."""
    found = set()
    for seed in range(200):
        disk = SimulatedDisk(seed)
        disk.write_file_atomically("f", b"old")
        disk.write_file_atomically("f", b"new", sync=False)
        disk.crash()
        found.add(disk.read_file("f"))
    assert found > {b"old", b"new"}


def test_faults_strike_by_number_and_leave_a_part() -> None:
    """An append that fails leaves some of its bytes; the next one succeeds."""
    disk = SimulatedDisk(3)
    file = disk.open("a", create=True)
    disk.fail_at(disk.calls + 1, errno.ENOSPC)
    with pytest.raises(OSError, match="ENOSPC") as caught:
        file.append([b"x" * 100])
    assert caught.value.errno == errno.ENOSPC
    assert 0 < file.size() < 100
    file.truncate(0)
    assert file.append([b"ok"]) == 2


def test_a_full_disk_refuses_bytes() -> None:
    """Beyond the capacity every write fails with ENOSPC."""
    disk = SimulatedDisk(capacity_bytes=10)
    file = disk.open("a", create=True)
    file.append([b"12345678"])
    with pytest.raises(OSError, match="ENOSPC"):
        file.append([b"abc"])
    assert disk.free_space() <= 2


def test_a_failed_sync_loses_the_bytes() -> None:
    """After a failed sync a second one succeeds without making anything durable (as on Linux)."""
    disk = SimulatedDisk()
    file = disk.open("a", create=True)
    disk.sync()
    file.append([b"x"])
    disk.fail(lambda call: call.kind == "sync")
    with pytest.raises(OSError, match="EIO"):
        file.sync()
    disk.crash()
    assert disk.read_file("a") == b""


def test_handles_and_locks_die_in_a_crash() -> None:
    """A handle from before a crash is refused; the lock is free."""
    disk = SimulatedDisk()
    file = disk.open("a", create=True)
    disk.lock(".lock")
    with pytest.raises(BlockingIOError):
        disk.lock(".lock")
    disk.kill()
    disk.lock(".lock").release()
    with pytest.raises(OSError, match="before the crash"):
        file.append([b"x"])


def test_one_seed_gives_one_outcome() -> None:
    """The same calls under the same seed end in the same bytes."""

    def run() -> bytes:
        disk = SimulatedDisk(7)
        file = disk.open("a", create=True)
        disk.sync()
        for number in range(20):
            file.append([bytes([number]) * 10])
        disk.crash()
        return disk.read_file("a")

    assert run() == run()


def test_reads_fail_on_request() -> None:
    """A fault may strike a read."""
    disk = SimulatedDisk()
    file = disk.open("a", create=True)
    file.append([b"x"])
    disk.fail(lambda call: call.kind == "read")
    with pytest.raises(OSError, match="EIO"):
        file.read(0, 1)
    assert file.read(0, 1) == b"x"
