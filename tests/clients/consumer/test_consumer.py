"""The consumer's cores against scripted brokers: positions, fetching, elections, transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.clients.consumer.deserializing import Deserializers
from ottla.clients.consumer.fetched import (
    AppendedRecord,
    FetchedPartitionRecords,
    next_offset_after,
)
from ottla.clients.consumer.fetcher import ClientFetchSession, Fetcher
from ottla.clients.consumer.positions import Positions, read_reset_policy
from ottla.clients.consumer.subscription import Subscription
from ottla.clients.coordinator import CoordinatorLookup
from ottla.clients.offsets import OffsetAndMetadata
from ottla.errors import CorruptMessage, ErrorCode, KafkaError, LogTruncationError
from ottla.protocol.apis.fetch import FetchRequest, FetchResponse
from ottla.protocol.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP
from ottla.records.batch import TimestampType
from ottla.records.builder import encode_batch
from ottla.records.control import ControlRecordType, encode_end_txn_marker
from ottla.types import TopicPartition, Uuid
from tests.clients.simulated import (
    LOSE_ANSWER,
    LOSE_REQUEST,
    NEVER_ANSWER,
    FakeCluster,
    Simulation,
    consumer_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

T0 = TopicPartition("t", 0)


class Rig:
    """A consumer without a façade, partitions by hand."""

    def __init__(self, *, brokers: int = 1, partitions: int = 1, **settings: object) -> None:
        self.cluster = FakeCluster(brokers)
        self.cluster.create("t", partitions)
        read = consumer_settings(**{"auto_offset_reset": "earliest", **settings})
        self.sim = Simulation(self.cluster, read)
        client = self.sim.client
        self.subscription = Subscription(exclude_internal=True)
        self.coordinator = CoordinatorLookup(client, read.group_id) if read.group_id else None
        self.positions = Positions(
            read, client, self.subscription, self.coordinator, wall_ms=lambda: 0
        )
        self.fetcher = Fetcher(
            read,
            client,
            self.subscription,
            deserializers=Deserializers(None, None),
            on_out_of_range=self.positions.reset,
        )
        if self.coordinator is not None:
            client.machines.append(self.coordinator)
        client.machines += [self.positions, self.fetcher]
        client.metadata.add_topics(["t"])
        self.values: list[bytes | None] = []

    def write(self, *values: bytes, partition: int = 0) -> None:
        """Append one batch."""
        records = [(1000, None, value, ()) for value in values]
        self.cluster.logs[TopicPartition("t", partition)].append(bytes(encode_batch(records)))

    def assign(self, *partitions: TopicPartition) -> None:
        """Read these."""
        self.subscription.assign_from_user(partitions)

    def drain(self) -> list[bytes | None]:
        """Take everything that is buffered."""
        for _, records in self.fetcher.take(10_000):
            self.values += [record.value for record in records]
        return self.values

    def read(self, count: int, limit_ms: int = 30_000) -> list[bytes | None]:
        """Run until count values have been read in all."""
        self.sim.run(lambda: len(self.drain()) >= count, limit_ms)
        return self.values


def test_reads_from_the_beginning_and_goes_on_with_what_comes() -> None:
    """Earliest by policy; new records follow; the position is the next offset."""
    rig = Rig()
    rig.write(b"a", b"b")
    rig.assign(T0)
    assert rig.read(2) == [b"a", b"b"]
    rig.write(b"c")
    assert rig.read(3) == [b"a", b"b", b"c"]
    assert rig.subscription.state(T0).position == 3


def test_starts_where_the_group_committed() -> None:
    """A committed offset wins over the policy."""
    rig = Rig(group_id="g")
    rig.write(b"a", b"b", b"c")
    rig.cluster.committed["g", T0] = 2
    rig.assign(T0)
    assert rig.read(1) == [b"c"]


def test_a_batch_is_cut_at_the_position_asked_for() -> None:
    """A broker returns whole batches; records below the position are left out."""
    rig = Rig()
    rig.write(b"a", b"b", b"c")
    rig.assign(T0)
    rig.subscription.state(T0).seek(1)
    assert rig.read(2) == [b"b", b"c"]


def test_take_stops_at_the_limit_and_goes_on_there() -> None:
    """max.poll.records cuts a batch; nothing is lost."""
    rig = Rig()
    rig.write(*[b"%d" % n for n in range(10)])
    rig.assign(T0)
    rig.sim.run(lambda: rig.fetcher.has_records)
    first = rig.fetcher.take(3)
    assert [r.value for r in first[0][1]] == [b"0", b"1", b"2"]
    assert rig.subscription.state(T0).position == 3
    assert len(rig.drain()) == 7


def test_a_paused_partition_delivers_nothing_and_loses_nothing() -> None:
    """Pause holds buffered records back too."""
    rig = Rig(partitions=2)
    one = TopicPartition("t", 1)
    rig.write(b"a", partition=0)
    rig.write(b"b", partition=1)
    rig.assign(T0, one)
    rig.subscription.state(T0).paused = True
    assert rig.read(1) == [b"b"]
    rig.sim.run_for(2_000)
    assert rig.drain() == [b"b"]
    rig.subscription.state(T0).paused = False
    assert rig.read(2) == [b"b", b"a"]


def test_seek_makes_answers_under_way_worthless() -> None:
    """An old Fetch's records do not appear after a seek."""
    rig = Rig()
    rig.write(b"a", b"b")
    rig.assign(T0)
    rig.sim.run(lambda: rig.cluster.requests(FetchRequest))
    rig.subscription.state(T0).seek(1)
    assert rig.read(1) == [b"b"]


def test_out_of_range_follows_the_policy() -> None:
    """Records deleted below the position: continue at the new start."""
    rig = Rig()
    rig.write(b"a")
    rig.write(b"b")
    rig.cluster.logs[T0].start = 1
    rig.cluster.logs[T0].batches.pop(0)
    rig.assign(T0)
    rig.subscription.state(T0).seek(0)
    assert rig.read(1) == [b"b"]


def test_without_a_policy_the_user_is_asked() -> None:
    """auto.offset.reset=none: an error that says why."""
    rig = Rig(auto_offset_reset="none")
    rig.assign(T0)
    rig.sim.run(lambda: rig.positions.errors)
    error = rig.positions.errors.pop()
    assert error is not None
    assert error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert "auto.offset.reset is none" in error.message


@pytest.mark.parametrize("fault", [LOSE_REQUEST, LOSE_ANSWER, None])
def test_a_dead_leader_is_left_for_its_successor(fault: str | None) -> None:
    """Reconnection after a broker's death: every record once, in order."""
    rig = Rig(brokers=2)
    rig.write(b"a")
    rig.assign(T0)
    rig.read(1)
    if fault:
        rig.cluster.faults[FetchRequest] = [fault]
    rig.sim.kill(1)
    rig.cluster.leaders[T0] = 2
    rig.cluster.logs[T0].leader_epoch += 1
    rig.write(b"b")
    assert rig.read(2) == [b"a", b"b"]


def test_a_leader_that_a_refusal_names_is_read_from_at_once() -> None:
    """KIP-951: without a backoff, also where the metadata lacks the leader's address."""
    rig = Rig(retry_backoff_ms=1000)
    rig.write(b"a")
    rig.assign(T0)
    rig.read(1)
    rig.cluster.brokers[2] = ("broker", 9002)
    rig.cluster.leaders[T0] = 2
    rig.cluster.logs[T0].leader_epoch += 1
    rig.cluster.names_leaders = True
    rig.cluster.faults[MetadataRequest] = [NEVER_ANSWER]
    rig.write(b"b")
    began_ms = rig.sim.now_ms
    assert rig.read(2) == [b"a", b"b"]
    assert rig.sim.now_ms - began_ms < 100


def _truncate(rig: Rig) -> None:
    """Write and read three records; an election takes the last one away."""
    for value in (b"a", b"b", b"lost"):
        rig.write(value)
    rig.assign(T0)
    rig.subscription.state(T0).seek(0)
    rig.read(3)
    log = rig.cluster.logs[T0]
    log.batches.pop()
    log.end = 2
    log.leader_epoch = 1
    rig.cluster.leaders[T0] = 2
    rig.sim.client.metadata.mark_stale()


def test_a_truncated_log_is_reported_without_a_policy() -> None:
    """auto.offset.reset=none: nothing is read twice or left out before the user seeks."""
    rig = Rig(brokers=2, auto_offset_reset="none")
    _truncate(rig)
    for _ in range(2):
        rig.sim.run(lambda: rig.positions.errors)
        error = rig.positions.errors.pop()
        assert isinstance(error, LogTruncationError)
        assert (error.topic, error.partition, error.offset) == ("t", 0, 3)
        assert error.divergent_offset == 2
        assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert rig.subscription.state(T0).position == 3
    rig.write(b"c")
    rig.sim.run_for(1_000)
    assert rig.drain() == [b"a", b"b", b"lost"]
    assert len(rig.cluster.requests(OffsetForLeaderEpochRequest)) < 20
    rig.subscription.state(T0).seek(2)
    assert rig.read(4) == [b"a", b"b", b"lost", b"c"]
    assert not rig.positions.errors


def test_a_position_above_a_truncated_log_goes_back_to_the_cut() -> None:
    """KIP-320: after an election the epoch of the last record read is checked."""
    rig = Rig(brokers=2)
    _truncate(rig)
    rig.sim.run(lambda: rig.subscription.state(T0).position == 2)
    assert rig.cluster.requests(OffsetForLeaderEpochRequest)
    rig.write(b"c")
    assert rig.read(4) == [b"a", b"b", b"lost", b"c"]


def _forget_epochs(rig: Rig) -> None:
    """Have the new leader know no epoch of the position: its log was truncated further."""

    def undefined(request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        response = rig.cluster.epoch_end(request)
        assert isinstance(response, OffsetForLeaderEpochResponse)
        (answer,) = response.topics[0].partitions
        answer.leader_epoch = answer.end_offset = -1
        return response

    rig.cluster.faults[OffsetForLeaderEpochRequest] = [undefined]


def test_a_position_of_an_epoch_that_the_leader_has_not_is_reset() -> None:
    """KIP-320: no offset tells where the logs differ, so auto.offset.reset decides."""
    rig = Rig(brokers=2, auto_offset_reset="earliest")
    _truncate(rig)
    _forget_epochs(rig)
    rig.write(b"c")
    assert rig.read(6) == [b"a", b"b", b"lost", b"a", b"b", b"c"]


def test_a_position_of_an_unknown_epoch_is_reported_without_a_policy() -> None:
    """auto.offset.reset=none: the user seeks, without a divergent offset that would help."""
    rig = Rig(brokers=2, auto_offset_reset="none")
    _truncate(rig)
    _forget_epochs(rig)
    rig.sim.run(lambda: rig.positions.errors)
    error = rig.positions.errors.pop()
    assert isinstance(error, LogTruncationError)
    assert (error.offset, error.divergent_offset) == (3, None)
    assert "an unknown offset" in str(error)
    assert rig.subscription.state(T0).position == 3


def test_records_taken_during_a_validation_are_not_read_again() -> None:
    """The answer is about the epoch of an older position; the next ones are of a newer epoch."""
    rig = Rig()
    log = rig.cluster.logs[T0]
    rig.write(b"a")
    log.leader_epoch = 1
    rig.write(b"b")

    def end_of_first_epoch(request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        rig.values += [record.value for _, found in rig.fetcher.take(1) for record in found]
        response = rig.cluster.epoch_end(request)
        assert isinstance(response, OffsetForLeaderEpochResponse)
        response.topics[0].partitions[0].end_offset = 1
        return response

    rig.cluster.faults[OffsetForLeaderEpochRequest] = [end_of_first_epoch]
    rig.assign(T0)
    rig.subscription.state(T0).seek(0)
    rig.sim.run(lambda: len(rig.subscription.state(T0).buffered) > 0)
    rig.values += [record.value for _, found in rig.fetcher.take(1) for record in found]
    rig.sim.run(lambda: len(rig.values) == 2)
    rig.write(b"c")
    rig.read(3)
    assert rig.values == [b"a", b"b", b"c"]


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_an_end_offset_that_goes_back_is_asked_again(code: ErrorCode) -> None:
    """KAFKA-2334: after a failover; and an unexpected error of the broker, as by Kafka's."""
    rig = Rig(auto_offset_reset="latest")
    rig.write(b"a", b"b")

    def not_yet(request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = rig.cluster.list_offsets(request)
        assert isinstance(response, ListOffsetsResponse)
        response.topics[0].partitions[0].error_code = code
        response.topics[0].partitions[0].offset = 0
        return response

    rig.cluster.faults[ListOffsetsRequest] = [not_yet, not_yet]
    rig.assign(T0)
    rig.sim.run(lambda: rig.subscription.state(T0).position is not None)
    assert rig.subscription.state(T0).position == 2
    assert rig.positions.errors.pop() is None


def refused_fetch(rig: Rig, code: ErrorCode) -> Callable[[FetchRequest], FetchResponse]:
    """Return what answers a fetch with an error of its first partition."""

    def refuse(request: FetchRequest) -> FetchResponse:
        response = rig.cluster.fetch(request)
        assert isinstance(response, FetchResponse)
        response.responses[0].partitions[0].error_code = code
        return response

    return refuse


def test_an_unexpected_error_of_a_broker_passes() -> None:
    """UNKNOWN_SERVER_ERROR, as of a tier that is not read yet: fetched again, as by Kafka's."""
    rig = Rig()
    rig.write(b"a")
    rig.cluster.faults[FetchRequest] = [refused_fetch(rig, ErrorCode.UNKNOWN_SERVER_ERROR)]
    rig.assign(T0)
    assert rig.read(1) == [b"a"]
    assert rig.fetcher.errors.pop() is None


def test_not_allowed_reaches_the_user() -> None:
    """TOPIC_AUTHORIZATION_FAILED is not retried."""
    rig = Rig()
    rig.write(b"a")
    rig.cluster.faults[FetchRequest] = [refused_fetch(rig, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    rig.assign(T0)
    rig.sim.run(lambda: rig.fetcher.errors)
    error = rig.fetcher.errors.pop()
    assert error is not None
    assert error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_buffers_are_bounded() -> None:
    """Without takers no more is fetched than a few answers a partition."""
    rig = Rig(max_partition_fetch_bytes=1000)
    for _ in range(50):
        rig.write(b"v" * 500)
    rig.assign(T0)
    rig.sim.run_for(5_000)
    before = len(rig.cluster.requests(FetchRequest))
    rig.sim.run_for(5_000)
    assert len(rig.cluster.requests(FetchRequest)) == before
    assert len(rig.read(50)) == 50


# ---------------------------------------------------------------- fetched bytes


def _fetched(
    data: bytes, *, aborted: list[object] | None = None, offset: int = 0
) -> FetchedPartitionRecords:
    view = memoryview(data)
    end = next_offset_after(view)
    assert end is not None
    return FetchedPartitionRecords(T0, view, offset, end, aborted=aborted, check_crcs=True)


def _values(fetched: FetchedPartitionRecords) -> list[bytes | None]:
    out: list[bytes | None] = []
    while records := fetched.take(2):
        out += [record.value for record in records]
    return out


def test_records_stamped_by_the_broker_are_told_apart() -> None:
    """LogAppendTime shows in the type of the record, on both ways out."""
    records = [(0, b"k", b"v", ()), (0, None, b"w", (("h", b"1"),))]
    stamped = encode_batch(
        records, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=77
    )
    made = encode_batch(records, base_offset=2)
    taken = _fetched(bytes(stamped + made)).take_with_topic(2) + _fetched(
        bytes(made)
    ).take_with_topic(2)
    assert [isinstance(one, AppendedRecord) for one in taken] == [True, True, False, False]
    assert taken[0] == (*T0, 0, 77, b"k", b"v", ())


def _transactional(offset: int, producer_id: int, *values: bytes) -> bytes:
    records = [(0, None, value, ()) for value in values]
    batch = encode_batch(
        records,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    return bytes(batch)


def _marker(offset: int, producer_id: int, kind: ControlRecordType) -> bytes:
    return bytes(
        encode_end_txn_marker(
            commit=kind is ControlRecordType.COMMIT,
            base_offset=offset,
            timestamp=0,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
        )
    )


def test_read_committed_leaves_out_aborted_transactions() -> None:
    """Interleaved transactions of two producers; one aborts, then commits another."""
    abort, commit = ControlRecordType.ABORT, ControlRecordType.COMMIT
    data = b"".join(
        [
            _transactional(0, 7, b"bad0", b"bad1"),
            _transactional(2, 8, b"good0"),
            _marker(3, 7, abort),
            _transactional(4, 7, b"good1"),
            _marker(5, 8, commit),
            _marker(6, 7, commit),
        ]
    )
    aborted = FetchResponse.FetchableTopicResponse.PartitionData.AbortedTransaction(
        producer_id=7, first_offset=0
    )
    fetched = _fetched(data, aborted=[aborted])
    assert _values(fetched) == [b"good0", b"good1"]
    assert fetched.position == 7
    assert _values(_fetched(data)) == [b"bad0", b"bad1", b"good0", b"good1"]


def test_a_flipped_bit_is_found() -> None:
    """check.crcs: CorruptMessage, and the position stays in front of the batch."""
    data = bytearray(_transactional(0, -1, b"value"))
    data[-2] ^= 1
    fetched = _fetched(bytes(data))
    with pytest.raises(CorruptMessage):
        fetched.take(1)
    assert fetched.position == 0


def test_a_cut_last_batch_is_ignored() -> None:
    """Brokers cut answers at a byte limit."""
    data = _transactional(0, -1, b"a") + _transactional(1, -1, b"b")[:-3]
    assert next_offset_after(memoryview(data)) == 1
    assert _values(_fetched(data)) == [b"a"]


def test_sessions_tell_only_what_changed() -> None:
    """KIP-227: full, then differences; a lost session starts over."""
    session = ClientFetchSession()
    topic_id = Uuid(bytes(15) + b"\x01")
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    entries = {one: (topic_id, 5, 0, 100), two: (topic_id, 9, 0, 100)}
    assert session.changes(dict(entries)) == (entries, {})
    session.answered(33)
    assert session.changes(dict(entries)) == ({}, {})
    session.answered(33)
    moved = {one: (topic_id, 6, 0, 100)}
    assert session.changes(dict(moved)) == (moved, {two: entries[two]})
    assert session.epoch == 2
    session.reset()
    assert session.changes(dict(entries)) == (entries, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", EARLIEST_TIMESTAMP),
        ("latest", -1),
        ("none", None),
        ("by_duration:PT1H30M", ("by_duration", 5_400_000)),
        ("by_duration:P2DT0.5S", ("by_duration", 172_800_500)),
    ],
)
def test_reset_policies(text: str, expected: object) -> None:
    """KIP-1106's durations among them."""
    assert read_reset_policy(text) == expected


def test_a_bad_reset_policy_is_reported() -> None:
    """The setting's name and what is allowed."""
    with pytest.raises(KafkaError, match=r"auto\.offset\.reset: 'smallest'"):
        read_reset_policy("smallest")


def test_offsets_compare_by_value() -> None:
    """OffsetAndMetadata is a plain value."""
    assert OffsetAndMetadata(3) == OffsetAndMetadata(3, "", -1)
