"""Where epochs begin and end, as the tables of KIP-101 and KIP-279 want it."""

from __future__ import annotations

import errno

import pytest

from ottla.errors import CorruptMessage
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs, decode_leader_epochs
from ottla.testing.disk import SimulatedDisk
from tests.storage.logs import NOW_MS, close, flush, new_log, put
from tests.storage.sets import drain, finish, make, open_set


def epochs(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*pair) for pair in pairs])


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),
        (1, (10, 1)),
        (2, (10, 2)),
        (3, (20, 2)),
        (4, (20, 2)),
        (5, (20, 2)),
        (6, (30, 6)),
        (7, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch(epoch: int, expected: tuple[int, int]) -> None:
    """Known epochs, gaps, the current one, those before all and those to come."""
    known = epochs((2, 10), (6, 20)) if epoch != 2 else epochs((2, 5), (6, 10))
    assert tuple(known.end_offset_for(epoch, 30)) == expected


def test_epoch_zero_is_an_epoch() -> None:
    """KAFKA-10432: zero is not "none"."""
    known = epochs((0, 0))
    assert tuple(known.end_offset_for(0, 7)) == (7, 0)
    assert known.epoch_for_offset(3) == 0


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ((3, 30), [(1, 0), (2, 20), (3, 30)]),
        ((2, 25), [(1, 0), (2, 20)]),
        ((2, 15), [(1, 0), (2, 15)]),
        ((3, 20), [(1, 0), (3, 20)]),
        ((3, 0), [(3, 0)]),
        ((1, 5), [(1, 5)]),
    ],
)
def test_assignment_removes_what_contradicts_it(
    assigned: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    """Entries always grow in both columns."""
    known = epochs((1, 0), (2, 20))
    known.assign(*assigned)
    assert [tuple(entry) for entry in known.entries] == expected


def test_truncation_at_both_ends() -> None:
    """The epoch around the start begins there; epochs at the end offset go (KAFKA-10706)."""
    known = epochs((1, 0), (2, 20), (3, 40))
    known.truncate_from_end(40)
    assert [tuple(entry) for entry in known.entries] == [(1, 0), (2, 20)]
    known.truncate_from_start(25)
    assert [tuple(entry) for entry in known.entries] == [(2, 25)]
    known.truncate_from_start(25)
    assert [tuple(entry) for entry in known.entries] == [(2, 25)]
    known.clear()
    assert known.latest_epoch == -1


def test_the_file_round_trips_and_lies_are_found() -> None:
    """The text is Kafka's; torn text is refused."""
    known = epochs((0, 0), (5, 100))
    assert known.encode() == b"0\n2\n0 0\n5 100\n"
    assert decode_leader_epochs(known.encode()).entries == known.entries
    for text in (b"", b"0\n2\n0 0\n", b"1\n0\n", b"0\nx\n", b"0\n1\n0\n", b"\xff", b"0\n1\n1 13"):
        with pytest.raises(CorruptMessage):
            decode_leader_epochs(text)


def test_an_epoch_without_a_write_survives_a_restart() -> None:
    """KAFKA-7415: a leader that never wrote is still known."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log, epoch=1)
    log.assign_epoch(4)
    flush(log)
    log = new_log(disk)
    assert tuple(log.epoch_end_offset(4)) == (1, 4)
    assert log.latest_epoch == 4


def test_a_broken_file_is_made_again_from_the_batches() -> None:
    """KAFKA-16541's half file costs a walk over the headers, not the epochs."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(20):
        put(log, epoch=number // 8)
    close(log)
    entries = list(log.leader_epochs.entries)
    disk.open("t-0/leader-epoch-checkpoint").truncate(5)
    for clean in (True, False):
        assert new_log(disk, clean=clean, now_ms=NOW_MS).leader_epochs.entries == entries


def test_a_new_epoch_is_in_the_file_before_any_record() -> None:
    """Without a sync: it outlives the process, and a flush makes it durable."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    log = make(logs)
    log.assign_epoch(3)
    disk.trace = []
    drain(logs)
    assert disk.read_file("a-0/leader-epoch-checkpoint") == b"0\n1\n3 0\n"
    assert not [call for call in disk.trace if call.kind.startswith("sync")]
    log.assign_epoch(3)
    assert logs.take_jobs() == []
    disk.kill()
    assert make(open_set(disk)).latest_epoch == 3


def test_epochs_of_a_log_that_is_flushed_wait() -> None:
    """Two workers must not write one file; the flush has the epochs as well."""
    logs = open_set(SimulatedDisk())
    log = make(logs)
    put(log)
    first = logs.take_jobs()
    log.assign_epoch(4)
    assert logs.epoch_files.take() == []
    finish(first)
    jobs = logs.epoch_files.take()
    assert len(jobs) == 1
    wait = logs.flushes.make_durable(log)
    finish(jobs)
    drain(logs)
    assert wait.done


def test_a_disk_that_fails_to_take_epochs_goes_offline() -> None:
    """Unless only descriptors ran out: then they are written later."""
    disk = SimulatedDisk()
    logs = open_set(disk)
    log = make(logs)
    log.assign_epoch(1)
    disk.fail(lambda call: call.kind == "rename", errno.EMFILE)
    finish(logs.epoch_files.take())
    disk.fail(lambda call: call.kind == "rename")
    finish(logs.epoch_files.take())
    assert not logs.online_directories
    assert log.failure is not None
