"""Committed metadata is applied some records in a turn; a snapshot may take the log's place."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.config.broker import parse_broker_config
from ottla.controller.controller import Controller
from ottla.controller.replayed_log import CatchUp, ReplayedLog
from ottla.errors import UnsupportedVersion
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.metadata.loader import MetadataLoader, SnapshotPolicy
from ottla.protocol.records.metadata import ClientQuotaRecord
from ottla.purgatory.work import Worker
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.snapshot import encode_snapshot
from ottla.records.builder import encode_batch
from ottla.testing.disk import SimulatedDisk
from ottla.types import OffsetAndEpoch
from tests.controller.harness import PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH = 1
PER_TURN = 3
Entity = ClientQuotaRecord.EntityData


def limit_of(user: str) -> bytes:
    """Return a record about one user."""
    entity = [Entity(entity_type="user", entity_name=user)]
    record = ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.0, remove=False)
    return encode_record(MessageAndVersion(record, 0))


class Standby:
    """A controller that follows a log; `turn` lets it apply more."""

    def __init__(self) -> None:
        config = parse_broker_config(PROPERTIES)
        controller = Controller(
            config=config,
            cluster_id="c",
            rng=Random(1),
            supported_features=SUPPORTED_FEATURES,
            kraft_version=lambda: 1,
            raise_kraft_version=lambda _level, validate_only: None,
        )
        self.loader = MetadataLoader()
        policy = SnapshotPolicy(max_bytes=1 << 30, max_interval_ms=0, now_ms=0)
        self.replayed = ReplayedLog(controller, self.loader, policy)
        self.log = ReplicatedLog.open(SimulatedDisk(), now_ms=0)
        self.turns: list[Callable[[], None]] = []
        self.caught_up: list[int] = []
        self.failures: list[Exception] = []
        self.worker_error: Exception | None = None
        """Of the next job of a worker."""
        self.published: list[int] = []
        self.catch_up = CatchUp(
            self.replayed,
            self.log,
            worker=Worker(self.turns.append),
            run_in_worker=self._run_in_worker,
            on_caught_up=lambda: self.caught_up.append(self.replayed.committed_offset),
            on_failure=self.failures.append,
        )
        self.catch_up.records_per_turn = PER_TURN
        self.loader.add_listener(
            lambda delta, _image: self.published.append(len(delta.quotas_changed))
        )

    def _run_in_worker(
        self, job: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        error, self.worker_error = self.worker_error, None
        done(None if error else job(), error)

    @property
    def users(self) -> set[str]:
        """The users in the image, which the controller has as well."""
        image = {str(name) for ((_, name),) in self.loader.image.quotas.by_entity}
        assert image <= {str(name) for ((_, name),), _ in self.replayed.controller.quotas._limits}
        return image

    def append(self, *values: bytes) -> None:
        """Write one batch."""
        records = [(0, None, value, ()) for value in values]
        data = encode_batch(records, base_offset=self.log.end_offset, leader_epoch=EPOCH)
        self.log.append(data, epoch=EPOCH, now_ms=0)

    def restart_at(self, offset: int, *users: str) -> OffsetAndEpoch:
        """Let a snapshot take the place of the log."""
        snapshot_id = OffsetAndEpoch(offset, EPOCH)
        data = encode_snapshot([limit_of(user) for user in users], now_ms=0, leader_epoch=EPOCH)
        write, _ = self.log.snapshot_writer(snapshot_id, [data])
        write()
        self.log.restart_at(snapshot_id, now_ms=0)
        return snapshot_id

    def turn(self) -> None:
        """Run the next turn."""
        self.turns.pop(0)()

    def run(self) -> None:
        """Run all turns."""
        while self.turns:
            self.turn()


def test_a_start_applies_some_records_in_a_turn_and_publishes_all_of_them() -> None:
    """Also of one batch, which the image gets as a whole."""
    standby = Standby()
    for number in range(4):
        standby.append(limit_of(f"u{number}"))
    standby.append(*(limit_of(f"v{number}") for number in range(5)))
    standby.catch_up.committed(9)
    assert standby.users == {"u0", "u1"}, "the third batch ends with the next turn"
    assert not standby.catch_up.is_done
    standby.turn()
    assert standby.users == {"u0", "u1", "u2", "u3"}
    assert standby.published == standby.caught_up == []
    standby.run()
    assert len(standby.users) == 9
    assert (standby.published, standby.caught_up) == ([9], [8])
    assert standby.catch_up.is_done


def test_later_changes_are_published_turn_by_turn() -> None:
    """The image is never ahead of its listeners; what comes meanwhile follows."""
    standby = Standby()
    standby.append(limit_of("u"))
    standby.catch_up.committed(1)
    for number in range(5):
        standby.append(limit_of(f"u{number}"))
    standby.catch_up.committed(4)
    assert standby.published == [1, 2]
    standby.catch_up.committed(6)
    standby.run()
    assert standby.published == [1, 2, 3]
    assert standby.caught_up == [0, 5]


def test_a_snapshot_takes_the_place_of_the_log_in_the_middle_of_its_replay() -> None:
    """What was not read yet is gone from the disk before the snapshot is announced."""
    standby = Standby()
    for number in range(10):
        standby.append(limit_of(f"u{number}"))
    standby.catch_up.committed(10)
    snapshot_id = standby.restart_at(20, "u1", "w")
    standby.run()
    assert standby.users == {"u0", "u1", "u2"}, "up to the batch that was begun"
    assert not standby.catch_up.is_done
    standby.catch_up.snapshot_loaded(snapshot_id)
    standby.catch_up.committed(20)
    standby.run()
    assert standby.users == {"u1", "w"}
    assert set(standby.replayed.controller.quotas._limits) == {
        ((("user", user),), "producer_byte_rate") for user in standby.users
    }
    assert (standby.caught_up, standby.failures) == ([19], [])


def test_a_newer_snapshot_comes_while_one_is_loaded() -> None:
    """The first is applied to its end, or not at all where its file is gone already."""
    standby = Standby()
    standby.append(limit_of("u"))
    standby.catch_up.committed(1)
    first = standby.restart_at(20, *(f"u{number}" for number in range(9)))
    standby.catch_up.snapshot_loaded(first)
    second = standby.restart_at(30, "w")
    assert standby.users == {"u"}, "the image changes when the snapshot is whole"
    standby.catch_up.snapshot_loaded(second)
    standby.catch_up.committed(30)
    standby.catch_up.snapshot_loaded(second)
    standby.run()
    assert standby.users == {"w"}
    assert standby.replayed.committed_offset == 29
    late = Standby()
    late.append(*(limit_of(f"u{number}") for number in range(9)))
    late.catch_up.committed(9)
    late.catch_up.snapshot_loaded(late.restart_at(20, "x"))
    last = late.restart_at(30, "y")
    late.run()
    assert late.failures == []
    late.catch_up.snapshot_loaded(last)
    late.run()
    assert late.users == {"y"}


def test_nothing_is_applied_after_the_end() -> None:
    """The log's files are closed."""
    standby = Standby()
    for number in range(10):
        standby.append(limit_of(f"u{number}"))
    standby.catch_up.committed(10)
    standby.catch_up.close()
    standby.run()
    assert standby.users == {"u0", "u1"}


@pytest.mark.parametrize("place", [1, 7])
def test_a_record_that_cannot_be_applied_ends_it(place: int) -> None:
    """In the first turn, or in a later one."""
    standby = Standby()
    for number in range(10):
        standby.append(b"\x01\x63\x00\x00" if number == place else limit_of(f"u{number}"))
    standby.catch_up.committed(10)
    standby.run()
    (failure,) = standby.failures
    assert isinstance(failure, UnsupportedVersion)
    assert len(standby.users) == place
    assert standby.caught_up == []


def test_a_snapshot_for_which_no_descriptor_was_left_is_loaded_later() -> None:
    """The node goes on: it does not halt, and tries again with its periodic tasks."""
    standby = Standby()
    snapshot_id = standby.restart_at(7, "a", "b")
    standby.worker_error = OSError(errno.EMFILE, "too many open files")
    standby.catch_up.snapshot_loaded(snapshot_id)
    standby.run()
    assert standby.failures == []
    assert not standby.catch_up.is_done
    standby.catch_up.retry_read()
    standby.run()
    assert standby.users == {"a", "b"}
    assert standby.catch_up.is_done
