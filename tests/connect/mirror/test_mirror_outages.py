"""The mirror while a cluster is away, refuses something, or has lost records."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.offsets import OffsetAndMetadata
from ottla.connect.mirror.checkpoint import MirrorCheckpointConnector, MirrorCheckpointTask
from ottla.connect.mirror.clusters import TopicFollower, create_compacted
from ottla.connect.mirror.flows import MirrorMaker, MirrorMakerConfig
from ottla.connect.mirror.heartbeat import MirrorHeartbeatConnector
from ottla.connect.mirror.records import MirrorCheckpoint, OffsetSync
from ottla.connect.mirror.settings import TASK_GROUPS, TASK_PARTITIONS, MirrorSettings
from ottla.connect.mirror.source import MirrorSourceConnector, MirrorSourceTask
from ottla.connect.records import SourceRecord
from ottla.errors import ClosedError, ConfigError, CorruptMessage, ErrorCode, KafkaError
from ottla.errors import TimeoutError as OttlaTimeoutError
from ottla.types import TopicPartition
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

UNREACHABLE = {
    "source.cluster.alias": "a",
    "target.cluster.alias": "b",
    "source.cluster.bootstrap.servers": "127.0.0.1:1",
    "target.cluster.bootstrap.servers": "127.0.0.1:1",
    "admin.timeout.ms": "50",
}
T = TopicPartition("t", 0)


class Fake:
    """Has the methods that a test gives it; those of a list give or raise its entries in turn."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **_: Any) -> Any:
            self.calls.append((name, arguments))
            answer = self.answers[name].pop(0) if self.answers.get(name) else None
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


class Context:
    """A worker without stored offsets."""

    def __init__(self) -> None:
        self.reconfigurations = 0

    def offsets(self, partitions: Any) -> list[None]:
        return [None for _ in partitions]

    def request_task_reconfiguration(self) -> None:
        self.reconfigurations += 1


@pytest.fixture(name="checkpoints")
def _checkpoints() -> Iterator[MirrorCheckpointTask]:
    task = MirrorCheckpointTask()
    more = {"sync.group.offsets.enabled": "true", "emit.checkpoints.interval.seconds": "1"}
    task.start({**UNREACHABLE, **more, TASK_GROUPS: "g"})
    task._is_ready = True
    task._follower = Fake()  # type: ignore[assignment]
    yield task
    task.stop()


def test_an_outage_does_not_end_the_task_of_checkpoints(
    checkpoints: MirrorCheckpointTask,
) -> None:
    """While the target or the syncs are away `poll` has nothing; afterwards groups are synced."""
    task, copy = checkpoints, TopicPartition("a.t", 0)
    task._store.add(OffsetSync(T, 0, 0))
    task._store.add(OffsetSync(T, 10, 20))
    task._store.read_to_end()
    task._checkpoints = {"g": {copy: MirrorCheckpoint("g", copy, 5, 1, "")}}
    task._source = Fake(list_group_offsets=[{}])  # type: ignore[assignment]
    gone = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    target = task._target = Fake(  # type: ignore[assignment]
        describe_groups=[TimeoutError("away"), {"g": gone}],
        list_group_offsets=[{}],
        alter_group_offsets=[{}],
    )
    assert task.poll() is None
    task._sync_due_s = 0
    task._follower = Fake(read_to_end=[TimeoutError("away")])  # type: ignore[assignment]
    assert task.poll() is None
    assert ("alter_group_offsets", ("g", {copy: OffsetAndMetadata(1, "")})) in target.calls
    offsets = {T: OffsetAndMetadata(15, "m")}
    task._source = Fake(list_group_offsets=[offsets])  # type: ignore[assignment]
    task._emit_due_s = 0
    (made,) = task.poll() or ()
    assert made.value == MirrorCheckpoint("g", copy, 15, 21, "m").value()


def test_a_topic_that_is_shorter_than_before_is_read_again() -> None:
    """An end before the position: the topic was created again, or its log was truncated."""
    record = type("R", (), {"topic": "s", "partition": 0, "offset": 0})()
    at = TopicPartition("s", 0)
    consumer = Fake(
        end_offsets=[{at: 500}, {at: 1}], position=[500, 500, 500, 0, 1], poll=[[record]]
    )
    read: list[Any] = []
    follower = TopicFollower(consumer, "s", read.append)  # type: ignore[arg-type]
    consumer.calls.clear()
    assert follower.read_to_end(lambda: False)
    assert ("seek_to_beginning", (at,)) not in consumer.calls
    consumer.calls.clear()
    assert follower.read_to_end(lambda: False)
    assert ("seek_to_beginning", (at,)) in consumer.calls
    assert read == [record]


def test_a_topic_that_becomes_shorter_while_it_is_read_is_read_to_its_new_end() -> None:
    """Else a read would wait until the new topic is as long as the old one was."""
    at = TopicPartition("s", 0)
    consumer = Fake(end_offsets=[{at: 500}, {at: 1}], position=[400, 400, 1], poll=[[]])
    follower = TopicFollower(consumer, "s", lambda _: None)  # type: ignore[arg-type]
    assert follower.read_to_end(lambda: not consumer.answers["position"])


def test_a_flow_whose_target_is_away_starts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other flows run meanwhile; with none that runs, or a lasting error, the start fails."""
    texts = {"clusters": "a,b,c"} | {f"{it}.bootstrap.servers": f"{it}:1" for it in "abc"}
    texts |= {"emit.heartbeats.enabled": "false", "a->b.enabled": "true", "a->c.enabled": "true"}
    errors: dict[str, KafkaError] = {"c:1": OttlaTimeoutError("away")}

    def offsets(settings: dict[str, str]) -> Fake:
        if (error := errors.get(settings["bootstrap.servers"])) is not None:
            raise error
        return Fake()

    monkeypatch.setattr("ottla.connect.mirror.flows.FlowOffsets", offsets)
    monkeypatch.setattr("ottla.connect.mirror.flows.Standalone", lambda *_: Fake(put=[Fake()] * 3))
    monkeypatch.setattr("ottla.connect.mirror.flows.RETRY_S", 0.01)
    mirror = MirrorMaker(MirrorMakerConfig(texts))
    mirror.start()
    try:
        assert list(map(str, mirror.workers)) == ["a->b"]
        errors.clear()
        end_s = time.monotonic() + WAIT_S
        while len(mirror.workers) < 2 and time.monotonic() < end_s:
            time.sleep(0.01)
        assert list(map(str, mirror.workers)) == ["a->b", "a->c"]
    finally:
        mirror.stop()
    lasting = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    away = OttlaTimeoutError("away")
    for case in ({"b:1": away, "c:1": away}, {"c:1": lasting}):
        errors.update(case)
        mirror = MirrorMaker(MirrorMakerConfig(texts))
        with pytest.raises(KafkaError):
            mirror.start()
        mirror.stop()
        errors.clear()


@pytest.mark.parametrize(
    ("task", "method", "number"),
    [
        (MirrorCheckpointTask(), "consumer", 2),
        (MirrorSourceTask(), "offset_sync_producer", 1),
    ],
)
def test_a_start_that_fails_leaves_no_client_open(
    monkeypatch: pytest.MonkeyPatch,
    task: MirrorCheckpointTask | MirrorSourceTask,
    method: str,
    number: int,
) -> None:
    """The worker stops a task also if it could not start."""
    make, calls = getattr(MirrorSettings, method), []

    def fail_at_last(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == number:
            raise ConfigError("wrong")
        return make(*arguments)

    monkeypatch.setattr(MirrorSettings, method, fail_at_last)
    task.context = Context()  # type: ignore[assignment]
    before = set(threading.enumerate())
    with pytest.raises(ConfigError):
        task.start({**UNREACHABLE, TASK_GROUPS: "g", TASK_PARTITIONS: "t-0"})
    task.stop()
    assert set(threading.enumerate()) <= before


def test_topics_that_may_not_be_created_are_assumed_to_be_there() -> None:
    """Whoever created them before gave the mirror no right to; other errors are raised."""
    for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
        create_compacted(Fake(create_topic=[KafkaError(code)]), "x", 1, 1)  # type: ignore[arg-type]
    wrong = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    with pytest.raises(KafkaError):
        create_compacted(Fake(create_topic=[wrong]), "x", 3, 1)  # type: ignore[arg-type]


@pytest.fixture(name="connector")
def _connector() -> Iterator[MirrorSourceConnector]:
    """Return a connector that found no topics at its start."""
    connector = MirrorSourceConnector()
    connector.context = Context()  # type: ignore[assignment]
    connector.start({**UNREACHABLE, "sync.topic.configs.enabled": "false"})
    assert connector.task_configs(1) == []
    assert connector._schedule is not None
    connector._schedule.stop(1)
    connector._source.close()
    connector._target.close()
    connector._schedule = None
    yield connector
    connector.stop()


def test_the_topic_of_syncs_is_created_after_an_outage_at_the_start(
    connector: MirrorSourceConnector,
) -> None:
    """Else producers would create it, with records that expire."""
    source = connector._source = Fake(list_topics=[[], []])  # type: ignore[assignment]
    connector._target = Fake(list_topics=[[], []])  # type: ignore[assignment]
    connector._refresh_tasks()
    connector._refresh_tasks()
    created = [arguments[0] for name, arguments in source.calls if name == "create_topic"]
    assert created == ["mm2-offset-syncs.b.internal"]


def test_the_topic_of_checkpoints_is_created_after_an_outage_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same of the other connector."""
    connector = MirrorCheckpointConnector()
    connector.context = Context()  # type: ignore[assignment]
    connector.start(UNREACHABLE)
    try:
        assert not connector._has_topic
        made: list[Any] = []
        monkeypatch.setattr(
            "ottla.connect.mirror.checkpoint.create_compacted", lambda *it: made.append(it[1:3])
        )
        connector._source.close()
        connector._source = Fake(list_groups=[[], []])  # type: ignore[assignment]
        connector._refresh()
        connector._refresh()
        assert made == [("a.checkpoints.internal", 3)]
    finally:
        connector.stop()


def test_heartbeats_begin_after_an_outage_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task runs before: it would have the topic created with records that expire."""
    connector, context = MirrorHeartbeatConnector(), Context()
    connector.context = context  # type: ignore[assignment]
    connector.start(UNREACHABLE)
    try:
        assert connector.task_configs(1) == []
        made: list[Any] = []
        monkeypatch.setattr(
            "ottla.connect.mirror.heartbeat.create_compacted", lambda *it: made.append(it[1:3])
        )
        for _ in range(2):
            connector._begin_later()
        assert made == [("heartbeats", 3)]
        assert context.reconfigurations == 1
        assert connector.task_configs(1) == [UNREACHABLE]
    finally:
        connector.stop()


def test_topics_that_cannot_be_described_are_not_taken_for_deleted(
    connector: MirrorSourceConnector,
) -> None:
    """A broker that restarts has no say in which partitions there are."""
    topic = type("T", (), {"name": "t", "partitions": [0, 1]})()
    away = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
    gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    connector._source = Fake(  # type: ignore[assignment]
        list_topics=[[topic]] * 3,
        describe_topics=[{"t": topic}, {"t": away}, {"t": gone}],
    )
    connector._target = Fake(list_topics=[[], [], []], create_topics=[{}])  # type: ignore[assignment]
    connector._source_configs = lambda _: {"t": []}  # type: ignore[method-assign, assignment]
    assert connector._refresh()
    with pytest.raises(KafkaError):
        connector._refresh()
    assert connector._known == [("t", 0), ("t", 1)]
    assert connector._refresh()
    assert connector._known == []


@pytest.fixture(name="source")
def _source() -> Iterator[MirrorSourceTask]:
    task = MirrorSourceTask()
    task.context = Context()  # type: ignore[assignment]
    task.start({**UNREACHABLE, TASK_PARTITIONS: "t-0"})
    assert task._producer is not None
    task._producer.close(0)
    task._producer = None
    yield task
    task.stop()


def test_an_error_of_the_source_does_not_end_the_task(source: MirrorSourceTask) -> None:
    """A right that is missing for a moment comes back; a client that is closed does not."""
    source._consumer.close()
    refused = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    record = (5, 1_000, b"k", b"v", ())
    source._consumer = Fake(  # type: ignore[assignment]
        poll_batches=[refused, CorruptMessage("a checksum"), [(T, [record])], ClosedError("closed")]
    )
    assert source.poll() is None
    assert source.poll() is None
    (copy,) = source.poll() or ()
    assert (copy.topic, copy.value, copy.source_offset) == ("a.t", b"v", {"offset": 5})
    with pytest.raises(ClosedError):
        source.poll()


def test_a_record_without_an_offset_in_the_target_makes_no_sync(source: MirrorSourceTask) -> None:
    """The offset of a duplicate is not known: as -1 it would take groups to the beginning."""
    producer = source._producer = Fake()  # type: ignore[assignment]
    wrapped = {"cluster": "a", "topic": "t", "partition": 0}
    record = SourceRecord("a.t", 0, source_partition=wrapped, source_offset={"offset": 7})
    source.commit_record(record, -1)
    source.commit()
    assert producer.calls == []


def test_a_stop_waits_for_one_group_only(checkpoints: MirrorCheckpointTask) -> None:
    """Each group of a cluster that is away costs the time of a call."""
    task = checkpoints
    task._groups = dict.fromkeys("gh")
    task._checkpoints = {it: {T: MirrorCheckpoint(it, T, 5, 1, "")} for it in task._groups}

    groups = []

    def away(group: str, **_: Any) -> Any:
        groups.append(group)
        task._is_stopped.set()
        raise TimeoutError("away")

    task._source, task._target = Fake(), Fake(describe_groups=[{"g": None, "h": None}])  # type: ignore[assignment]
    task._source.list_group_offsets = away  # type: ignore[assignment, method-assign]
    assert task._emit() == []
    assert groups == ["g"]
    task._sync_groups()  # is stopped: no state is looked at


def test_groups_whose_ids_have_commas_are_not_taken_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The filter excludes `secret`, so that `x,secret` must not bring it back."""
    connector = MirrorCheckpointConnector()
    connector.context = Context()  # type: ignore[assignment]
    monkeypatch.setattr("ottla.connect.mirror.checkpoint.create_compacted", lambda *_: None)
    more = {"groups.exclude": "secret", "refresh.groups.enabled": "false"}
    connector.start({**UNREACHABLE, **more})
    try:
        connector._source.close()
        groups = [type("G", (), {"group_id": it})() for it in ("good", "x,secret", "secret")]
        offsets = {T: OffsetAndMetadata(1, "")}
        connector._source = Fake(  # type: ignore[assignment]
            list_groups=[groups], list_group_offsets=[offsets, offsets]
        )
        connector._refresh()
        (config,) = connector.task_configs(5)
        assert config[TASK_GROUPS] == "good"
    finally:
        connector.stop()


def test_copies_go_on_without_the_right_to_write_offset_syncs(source: MirrorSourceTask) -> None:
    """A sync that cannot be sent is logged, as one whose delivery fails."""
    task, refused = source, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    producer = task._producer = Fake(send=[refused, refused])  # type: ignore[assignment]
    wrapped = {"cluster": "a", "topic": "t", "partition": 0}
    try:
        for offset in (0, 200):
            record = SourceRecord(
                "a.t", 0, source_partition=wrapped, source_offset={"offset": offset}
            )
            task.commit_record(record, offset)
        assert [it[0] for it in producer.calls] == ["send", "send"]
    finally:
        stopper = threading.Thread(target=task.stop)
        stopper.start()
        stopper.join(WAIT_S)
        assert not stopper.is_alive()
