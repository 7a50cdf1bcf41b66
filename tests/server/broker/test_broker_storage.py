"""What a change of metadata does when a disk fails in the middle of it."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource
from ottla.purgatory.work import MAX_STEPS, Worker
from ottla.replication.replica_set import ReplicaSet
from ottla.server.broker.coordinator_parts import Coordinators
from ottla.server.broker.publisher import LOGS_AT_ONCE, LOGS_OF_THE_LOOP, MetadataPublisher
from ottla.server.node.parts import NodeParts
from ottla.storage.log.config import LogConfig
from ottla.testing.disk import SimulatedDisk
from ottla.types import Uuid
from tests.replication.test_leader_state import Environment, Waits
from tests.storage.logs import NOW_MS
from tests.storage.sets import finish, open_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.testing.disk import Call

X, Y, Z = Uuid(b"x" * 16), Uuid(b"y" * 16), Uuid(b"z" * 16)


def topic(name: str, topic_id: Uuid) -> Any:
    partition = SimpleNamespace(
        replicas=(1,),
        adding_replicas=(),
        is_reassigning=False,
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )
    return SimpleNamespace(name=name, topic_id=topic_id, partitions={0: partition})


def change(*topics: Any, **parts: Any) -> tuple[Any, Any]:
    """Return a delta and the image after it."""
    delta = {
        "is_snapshot": False,
        "topics_deleted": {},
        "partitions_changed": {},
        "quotas_changed": (),
        "configs_changed": (),
        "brokers_changed": {},
    }
    image = SimpleNamespace(
        topics=SimpleNamespace(by_id={one.topic_id: one for one in topics}),
        configs=SimpleNamespace(of=lambda *_: {}),
    )
    return SimpleNamespace(**delta | parts), image


def at_once(
    _volume: object, job: Callable[[], Any], done: Callable[[Any, Exception | None], None]
) -> None:
    """Run a worker's job here and now."""
    error = None
    try:
        job()
    except OSError as failure:
        error = failure
    done(None, error)


def publisher(*disks: SimulatedDisk) -> tuple[MetadataPublisher, ReplicaSet, list[object]]:
    """Return a publisher over as much of a broker as it needs, and the topics its groups drop."""
    dropped: list[object] = []
    replicas = ReplicaSet(1, open_set(*disks))
    groups: Any = SimpleNamespace(on_topics_deleted=dropped.extend)
    broker: Any = SimpleNamespace(
        node_id=1,
        worker=Worker(lambda _turn: None, max_steps=inf),
        clock=SimpleNamespace(now_ms=lambda: NOW_MS, monotonic_ms=lambda: NOW_MS),
        replicas=replicas,
        replication=SimpleNamespace(
            wake=lambda: None, leave=lambda _: None, follow=lambda *_: None
        ),
        moves=SimpleNamespace(forget=lambda _: None, resume=lambda *_: None),
        quotas=SimpleNamespace(
            replication=SimpleNamespace(set_replicas=lambda *_: None, set_rates=lambda _: None)
        ),
        coordinators=Coordinators({"__consumer_offsets": groups}),
        share=SimpleNamespace(leader_changed=lambda _: None),
        metadata=SimpleNamespace(log_config=lambda _: LogConfig()),
    )
    return MetadataPublisher(broker, at_once), replicas, dropped


def test_a_disk_that_fails_while_a_topic_is_deleted_stops_no_other_change() -> None:
    """Another topic is deleted, a third one made, and the groups told, all by the same delta."""
    disks = SimulatedDisk(0), SimulatedDisk(1)
    one, replicas, dropped = publisher(*disks)
    for name, topic_id in (("x", X), ("y", Y)):
        replicas.host(name, 0, topic_id, now_ms=NOW_MS)
    disks[0].fail(lambda call: call.kind == "rename")
    delta, image = change(
        topic("z", Z),
        topics_deleted={X: topic("x", X), Y: topic("y", Y)},
        partitions_changed={Z: {0: None}},
    )
    one.metadata_changed(delta, image)
    assert [log_dir.is_online for log_dir in replicas.logs.directories] == [False, True]
    assert [str(partition.topic_partition) for partition in replicas] == ["z-0"]
    assert dropped == [("x", X), ("y", Y)]


def test_a_write_that_waits_for_replicas_hears_of_the_deletion() -> None:
    """Not of another leader, as after a change of leaders."""
    one, replicas, _ = publisher(SimulatedDisk())
    replicas.environment = Environment()
    partition, waits = replicas.host("x", 0, X, now_ms=NOW_MS), Waits()
    partition.assign((1, 2), (1, 2), 7)
    partition.become_leader(1, 5, now_ms=NOW_MS)
    assert partition.leading is not None
    partition.leading.acknowledge(1, waits, 0)
    one.metadata_changed(*change(topics_deleted={X: topic("x", X)}))
    assert waits.codes == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_a_log_in_a_failed_directory_is_neither_led_nor_replicated() -> None:
    """Clients are sent to the next leader; no fetch can end in that log."""
    one, replicas, _ = publisher(SimulatedDisk(0), SimulatedDisk(1))
    followed: list[object] = []
    x = topic("x", X)
    one.metadata_changed(*change(x, partitions_changed={X: {0: None}}))
    partition = replicas.get("x", 0)
    assert partition.is_leader
    replicas.logs.fail(replicas.logs.directories[0], OSError())
    one._replication.follow = lambda *found: followed.append(found)  # type: ignore[method-assign] # a fake
    x.partitions[0] = SimpleNamespace(
        replicas=(1, 2), isr=(2,), leader=2, leader_epoch=1, partition_epoch=1
    )
    one.metadata_changed(*change(x, partitions_changed={X: {0: x.partitions[0]}}))
    assert (partition.is_leader, partition.leader_id, followed) == (False, 2, [])


def test_only_new_partitions_are_made_while_a_directory_is_offline() -> None:
    """What a start finds in the metadata has a log already, and that may lie there."""
    disks = SimulatedDisk(0), SimulatedDisk(1)
    one, replicas, _ = publisher(*disks)
    logs = replicas.logs
    logs.fail(logs.directories[0], OSError("gone"))
    x, y, z = topic("x", X), topic("y", Y), topic("z", Z)
    one.metadata_changed(*change(x, is_snapshot=True, partitions_changed={X: {0: None}}))
    assert replicas.why_missing("x", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    one.metadata_changed(*change(y, partitions_changed={Y: {0: None}}))
    one.metadata_changed(*change(z, partitions_changed={Z: {0: SimpleNamespace(replicas=(1, 2))}}))
    assert [str(partition.topic_partition) for partition in replicas] == ["y-0"]
    moved = SimpleNamespace(replicas=(2, 3))
    one.metadata_changed(*change(z, partitions_changed={Z: {0: moved}}))
    assert replicas.find("z", 0) is not None


def many(name: str, topic_id: Uuid, count: int) -> Any:
    """Return a topic of so many partitions."""
    one = topic(name, topic_id)
    one.partitions = dict.fromkeys(range(count), one.partitions[0])
    return one


def test_thousands_of_partitions_are_changed_in_several_turns() -> None:
    """Votes, heartbeats and clients come between; what is deleted meanwhile is left out."""
    one, replicas, _ = publisher(SimulatedDisk())
    turns: list[Any] = []
    one._worker = Worker(turns.append)
    count = 2 * MAX_STEPS + 10
    x, y = many("x", X, count), topic("y", Y)
    one.metadata_changed(*change(x, is_snapshot=True, partitions_changed={X: dict(x.partitions)}))
    assert 0 < len(replicas) <= MAX_STEPS
    _, image = change(x, y)
    delta, _ = change(partitions_changed={Y: {0: None}})
    del x.partitions[count - 1]
    one.metadata_changed(delta, image)
    assert replicas.find("y", 0) is None, "in its turn"
    turns.pop(0)()
    assert MAX_STEPS < len(replicas) <= 2 * MAX_STEPS
    while "change of partitions" in one._worker:
        turns.pop(0)()
    assert len(replicas) == count
    assert replicas.find("y", 0) is not None
    assert "change of partitions" not in one._worker
    one.metadata_changed(*change(x, partitions_changed={X: dict.fromkeys(range(count - 1))}))
    one.close()
    turns[-1]()
    assert "change of partitions" not in one._worker


class Jobs:
    """Keeps the jobs that it is given until a test lets it run them."""

    def __init__(self, one: MetadataPublisher) -> None:
        self.jobs: list[tuple[Any, Any]] = []
        one._new_logs._run_on_volume = lambda _volume, job, done: self.jobs.append((job, done))

    def run(self) -> None:
        """Run what there is now."""
        jobs, self.jobs = self.jobs, []
        for job, done in jobs:
            at_once(None, job, done)


def test_few_new_logs_are_made_by_the_loop() -> None:
    """A client may write as soon as its topic exists."""
    one, replicas, _ = publisher(SimulatedDisk())
    worker = Jobs(one)
    x = many("x", X, LOGS_OF_THE_LOOP)
    one.metadata_changed(*change(x, partitions_changed={X: dict.fromkeys(x.partitions)}))
    assert (len(replicas), worker.jobs) == (LOGS_OF_THE_LOOP, [])


def test_a_name_that_returns_waits_until_the_checkpoints_are_without_it() -> None:
    """A worker writes them; few logs are made by the loop then."""
    one, replicas, _ = publisher(SimulatedDisk())
    x, again = topic("x", X), topic("x", Y)
    one.metadata_changed(*change(x, partitions_changed={X: {0: None}}))
    replicas.logs.checkpoints.request_all()
    finish(replicas.logs.take_jobs())
    worker = Jobs(one)
    one.metadata_changed(*change(again, topics_deleted={X: x}, partitions_changed={Y: {0: None}}))
    assert (len(replicas), len(worker.jobs)) == (0, 1)
    worker.run()
    assert len(replicas) == 0, "the checkpoint's name is not durable yet"
    worker.run()
    assert [log.topic_id for log in replicas.logs] == [Y]
    assert worker.jobs == []


def test_many_new_logs_are_made_by_workers_a_batch_at_a_time() -> None:
    """Other partitions are changed meanwhile."""
    one, replicas, _ = publisher(SimulatedDisk(), SimulatedDisk())
    worker = Jobs(one)
    x, y = many("x", X, 2 * LOGS_AT_ONCE), topic("y", Y)
    replicas.host("y", 0, Y, now_ms=NOW_MS)
    one.metadata_changed(*change(x, y, partitions_changed={X: dict.fromkeys(x.partitions)}))
    assert len(replicas) == 1
    one.metadata_changed(*change(x, y, partitions_changed={Y: {0: y.partitions[0]}}))
    assert replicas.get("y", 0).is_leader
    one.metadata_changed(*change(x, y, partitions_changed={X: {3: x.partitions[3]}}))
    assert len(replicas) == 1
    worker.run()
    assert len(replicas) == 1 + LOGS_AT_ONCE
    worker.run()
    assert len(replicas) == 1 + 2 * LOGS_AT_ONCE
    assert all(partition.is_leader for partition in replicas)
    counts = [len(replicas.logs.table.logs_in(one)) for one in replicas.logs.directories]
    assert counts == [LOGS_AT_ONCE + 1, LOGS_AT_ONCE]


def test_a_topic_that_is_deleted_while_its_logs_are_made_leaves_none() -> None:
    """Its successor of the same name gets logs of its own."""
    one, replicas, _ = publisher(SimulatedDisk())
    worker = Jobs(one)
    x, again = many("x", X, 50), many("x", Z, 40)
    delta, image = change(x, partitions_changed={X: dict.fromkeys(x.partitions)})
    one.metadata_changed(delta, image)
    image.topics.by_id = {Z: again}
    delta, _ = change(topics_deleted={X: x}, partitions_changed={Z: dict.fromkeys(range(40))})
    one.metadata_changed(delta, image)
    worker.run()
    assert len(replicas) == 0
    worker.run()
    assert len(replicas) == 40
    assert {log.topic_id for log in replicas.logs} == {Z}
    assert len(replicas.logs) == 40


def test_a_disk_that_fails_while_logs_are_made_takes_its_directory_offline() -> None:
    """The partitions get their logs in the other one."""
    disks = SimulatedDisk(0), SimulatedDisk(1)
    one, replicas, _ = publisher(*disks)
    x = many("x", X, 60)
    disks[0].fail(lambda call: call.path.startswith("x-40"))
    one.metadata_changed(*change(x, partitions_changed={X: dict.fromkeys(x.partitions)}))
    assert [log_dir.is_online for log_dir in replicas.logs.directories] == [False, True]
    assert len(replicas.logs.table.logs_in(replicas.logs.directories[1])) == 60


def test_a_publisher_that_is_closed_hosts_no_more() -> None:
    """The node stops while a worker makes logs, which are closed with the others."""
    one, replicas, _ = publisher(SimulatedDisk())
    worker = Jobs(one)
    x = many("x", X, 2 * LOGS_AT_ONCE)
    one.metadata_changed(*change(x, partitions_changed={X: dict.fromkeys(x.partitions)}))
    one.close()
    worker.run()
    assert (len(replicas), len(replicas.logs), worker.jobs) == (0, LOGS_AT_ONCE, [])


def test_settings_that_change_while_logs_are_made_are_theirs() -> None:
    """The log is opened with what was valid before."""
    one, replicas, _ = publisher(SimulatedDisk())
    worker = Jobs(one)
    x = many("x", X, 50)
    one.metadata_changed(*change(x, partitions_changed={X: dict.fromkeys(x.partitions)}))
    for job, _ in worker.jobs:
        job.__self__._config_for = lambda _topic: LogConfig(segment_bytes=12345)
    worker.run()
    assert {log.config.segment_bytes for log in replicas.logs} == {12345}


def test_a_turn_of_the_loop_ends_when_the_disk_is_slow() -> None:
    """What a log waited for is not multiplied by a hundred; each turn changes one at least."""
    disk = SimulatedDisk()
    one, replicas, _ = publisher(disk)
    turns: list[Any] = []
    waited_ms: list[float] = []
    one._worker = Worker(turns.append, lambda: sum(waited_ms) / 1000, max_steps=inf)

    def wait(call: Call) -> bool:
        if call.kind == "rename":
            waited_ms.append(log_ms)
        return False

    log_ms = 2.7  # a third of the time of few, and more than the budget of a turn
    disk.fail(wait)
    x = many("x", X, 9)
    one.metadata_changed(*change(x, partitions_changed={X: dict.fromkeys(x.partitions)}))
    assert len(replicas) == 3
    log_ms = 100
    turns[-1]()
    assert len(replicas) == 4


def test_a_change_that_fails_stops_no_other_change() -> None:
    """Whatever the error is: the other topics, partitions, quotas and settings are applied."""
    one, replicas, groups = publisher(SimulatedDisk())
    parts: Any = one._broker
    applied: list[object] = []

    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    coordinator: Any = SimpleNamespace(
        on_topics_deleted=lambda topics: fail() if topics[0][0] == "x" else groups.extend(topics)
    )
    parts.coordinators = Coordinators({"__consumer_offsets": coordinator})
    parts.metadata.log_config = lambda name: fail() if name == "u" else LogConfig()
    one = MetadataPublisher(parts, at_once)
    node_parts = NodeParts()
    node_parts.add("the partitions", metadata_changed=one.metadata_changed)
    node_parts.add("the quotas", metadata_changed=fail)
    node_parts.add(
        "the clients' metrics",
        metadata_changed=lambda delta, _: applied.extend(
            resource.name for resource in delta.configs_changed
        ),
    )
    u, v = topic("u", Uuid(b"u" * 16)), topic("v", Uuid(b"v" * 16))
    delta, image = change(
        u,
        v,
        topics_deleted={X: topic("x", X), Y: topic("y", Y)},
        partitions_changed={u.topic_id: {0: None}, v.topic_id: {0: None}},
        quotas_changed=("entity",),
        configs_changed=(ConfiguredResource(ConfigResourceType.CLIENT_METRICS, "subscription"),),
    )
    image.quotas = SimpleNamespace(by_entity={})
    node_parts.metadata_changed(delta, image)
    assert groups == [("y", Y)]
    partition = replicas.find("v", 0)
    assert partition is not None
    assert partition.is_leader
    assert applied == ["subscription"]


def test_the_logs_of_a_large_topic_are_deleted_some_at_a_time() -> None:
    """Its partitions serve no more at once, and a topic of the same name gets logs of its own."""
    turns: list[Any] = []
    one, replicas, _ = publisher(SimulatedDisk())
    count = MAX_STEPS + 50
    x = many("x", X, count)
    one.metadata_changed(*change(x, partitions_changed={X: dict.fromkeys(x.partitions)}))
    assert len(replicas.logs) == count
    last = replicas.get("x", count - 1)
    last.become_leader(1, 0, now_ms=0)
    one._worker = Worker(turns.append)
    one.metadata_changed(*change(topics_deleted={X: x}))
    assert len(replicas.logs) == 50
    assert not last.is_leader
    again = many("x", Y, 2)
    again.partitions = {count - 1: again.partitions[0]}
    one.metadata_changed(*change(again, partitions_changed={Y: {count - 1: None}}))
    while (found := replicas.find("x", count - 1)) is None or found.topic_id != Y:
        turns.pop(0)()
    assert found is not None
    assert found.topic_id == Y
    one.close()
    assert [log.topic_id for log in replicas.logs] == [Y]
