"""AlterPartition, elections, reassignments and directories decided by real Kafka and by us.

Brokers 11 to 15 exist for the controllers only: the test sends what brokers would.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.apis.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest
from ottla.types import ZERO_UUID
from tests.conformance.answers.controllers import Controller, OurController, Pair, RealController
from tests.conformance.kafka import running_kafka
from tests.controller.brokers import directory_of
from tests.controller.harness import Harness, assigned_topic, incremental_change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.partition import PartitionRegistration
    from ottla.protocol.schema import Request
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
BROKERS = range(11, 16)
TOPICS = ("one", "two", "three", "four")
PROPERTIES = {
    "broker.session.timeout.ms": "3600000",
    "auto.leader.rebalance.enable": "false",
}
SEED, STEPS = 5, 1500


@pytest.fixture(scope="module")
def pair(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Run a real controller and ours, each with five brokers and four topics."""
    directory = tmp_path_factory.mktemp("kafka")
    properties: dict[str, Any] = {
        name.replace(".", "_"): value for name, value in PROPERTIES.items()
    }
    harness = Harness(**properties)
    harness.bring_up()
    with running_kafka(kafka, directory, PROPERTIES) as node:
        pair = Pair(RealController(node), OurController(harness))
        for broker_id in BROKERS:
            _join(pair, broker_id)
        topics = [
            assigned_topic("one", [11, 12, 13]),
            assigned_topic("two", [12, 13, 11]),
            assigned_topic("three", [13, 14]),
            assigned_topic("four", [15, 14, 13, 12]),
        ]
        config = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
        for topic, settings in zip(
            topics,
            ({"min.insync.replicas": "2"}, {"unclean.leader.election.enable": "true"}, {}, {}),
            strict=True,
        ):
            topic.configs = [config(name=key, value=value) for key, value in settings.items()]
        topics[3].configs.append(config(name="min.insync.replicas", value="3"))
        pair.step("create", lambda side: side.create(CreateTopicsRequest(topics=topics)))
        yield pair


def _join(pair: Pair, broker_id: int) -> None:
    pair.step("register", lambda side: side.register(broker_id, 1))
    pair.step("unfence", lambda side: side.beat(broker_id))


def _fence(pair: Pair, broker_id: int) -> None:
    fenced = pair.step("fence", lambda side: side.beat(broker_id, want_fence=True))
    assert fenced.is_fenced


def test_random_steps_are_decided_alike(pair: Pair) -> None:
    """Each answer and each record; seeded, so that a difference can be repeated.

    At last a topic is deleted, which needs no broker.
    """
    Steps(pair, random.Random(SEED)).run(STEPS)
    for broker_id in BROKERS:
        if broker_id in pair.ours.harness.image.cluster.brokers:
            _fence(pair, broker_id)
    state = DeleteTopicsRequest.DeleteTopicState
    states = [state(name="one", topic_id=ZERO_UUID)]
    request = DeleteTopicsRequest(topics=states, timeout_ms=5000)
    deleted = pair.step("delete", lambda side: side.ask(request))
    assert not any(one.error_code for one in deleted.responses)
    assert not pair.differences, "\n".join(pair.differences[:5])


class Steps:
    """Draws requests that often make sense in the state of our controller."""

    def __init__(self, pair: Pair, rng: random.Random) -> None:
        self._pair = pair
        self._rng = rng
        self._has_deleted = False
        self._incarnations = dict.fromkeys(BROKERS, 1)

    def run(self, count: int) -> None:
        """Do this many steps; end at the first difference, after which all would differ.

        Where a replica leaves the assignment that is an eligible or the last leader, the decisions
        differ on purpose (docs/reliability.md): such a topic is made again.
        """
        kinds = [
            *(self._alter,) * 8,
            *(self._fence, self._unfence, self._reassign, self._elect) * 3,
            *(self._assign, self._list, self._restart) * 2,
            *(self._stop, self._lose, self._unregister, self._create, self._grow),
            self._configure,
        ]
        for _ in range(count):
            self._rng.choice(kinds)()
            if self._pair.differ_in_field("eligible_leader_replicas"):
                self._pair.differences.pop()
                for topic in TOPICS:
                    self._renew(topic)
            if self._pair.differences:
                return
            for topic in TOPICS:
                partition = self._partition(topic)
                if set(partition.last_known_elr) - set(partition.replicas):
                    self._renew(topic)

    def _renew(self, topic: str) -> None:
        self._has_deleted = True
        state = DeleteTopicsRequest.DeleteTopicState(name=topic, topic_id=ZERO_UUID)
        self._ask(
            f"delete {topic}", DeleteTopicsRequest(topics=[state], timeout_ms=5000), shows=False
        )
        while self._broker(fenced=False) is None:
            self._unfence()
            self._restart()
        led = [self._broker(fenced=False) or 0, *self._registered()]
        request = CreateTopicsRequest(topics=[assigned_topic(topic, list(dict.fromkeys(led)))])
        self._pair.step(f"create {topic}", lambda side: side.create(request))

    def _ask(self, label: str, request: Request, *, shows: bool = True) -> None:
        self._pair.step(label, lambda side: side.ask(request), shows=shows)

    def _partition(self, topic: str) -> PartitionRegistration:
        return self._pair.ours.harness.image.topics.by_name[topic].partitions[0]

    def _topic(self) -> str:
        return self._rng.choice(TOPICS)

    def _registered(self) -> list[int]:
        brokers = self._pair.ours.harness.image.cluster.brokers
        return [one for one in BROKERS if one in brokers]

    def _broker(self, *, fenced: bool | None = None) -> int | None:
        brokers = self._pair.ours.harness.image.cluster.brokers
        found = [
            one for one in self._registered() if fenced is None or brokers[one].fenced == fenced
        ]
        return self._rng.choice(found) if found else None

    def _alter(self) -> None:
        rng, topic = self._rng, self._topic()
        partition = self._partition(topic)
        leader = partition.leader
        if leader not in self._registered() or rng.random() < 0.1:
            leader = self._broker() or 11
        if leader not in self._pair.ours.epochs:
            return
        isr = {leader} | {one for one in partition.replicas if rng.random() < 0.7}
        if rng.random() < 0.05:
            isr ^= {rng.choice(BROKERS)}
        members = [
            (one, rng.choice((0,) * 12 + (1,))) for one in sorted(isr, key=lambda _: rng.random())
        ]
        fields = {
            "leader_epoch": partition.leader_epoch + rng.choice((0,) * 12 + (-1, 1)),
            "partition_epoch": partition.partition_epoch + rng.choice((0,) * 12 + (-1, 1)),
            "leader_recovery_state": rng.choice((0, 0, 0, 1)),
        }
        self._pair.step(
            f"alter {topic} {leader} {members} {fields}",
            lambda side: side.alter(leader, topic, members, **fields),
        )

    def _beat(self, broker_id: int | None, **fields: Any) -> None:
        if broker_id is not None:
            self._pair.step(
                f"heartbeat {broker_id} {fields}", lambda side: side.beat(broker_id, **fields)
            )

    def _fence(self) -> None:
        self._beat(self._broker(fenced=False), want_fence=True)

    def _unfence(self) -> None:
        self._beat(self._broker(fenced=True))

    def _stop(self) -> None:
        """Stop a broker: at once where it leads nothing. It is removed afterwards.

        Kafka lets the next incarnation register only when the session of this one has expired.
        """
        broker_id = self._broker(fenced=False)
        if broker_id is not None:
            self._beat(broker_id, want_shut_down=True)
            for _ in range(3):
                self._alter()
            self._ask(f"unregister {broker_id}", UnregisterBrokerRequest(broker_id=broker_id))

    def _lose(self) -> None:
        """Lose a log directory; not after a deletion, which Kafka's index may not survive."""
        broker_id = self._broker(fenced=False)
        if broker_id is not None and not self._has_deleted:
            self._beat(broker_id, offline_log_dirs=[directory_of(broker_id, 1)])

    def _restart(self) -> None:
        """Register a new incarnation; an earlier one that sends heartbeats is in its way."""
        broker_id = self._rng.choice(BROKERS)
        self._incarnations[broker_id] += 1
        incarnation = self._incarnations[broker_id] % 256
        is_clean = self._rng.random() < 0.5
        log_dirs = [directory_of(broker_id), directory_of(broker_id, 1)]
        if self._rng.random() < 0.5:
            del log_dirs[1]

        def register(side: Controller) -> Any:
            previous = side.epochs.get(broker_id, -1) if is_clean else -1
            return side.register(
                broker_id, incarnation, previous_broker_epoch=previous, log_dirs=log_dirs
            )

        self._pair.step(f"register {broker_id} clean={is_clean}", register)

    def _reassign(self) -> None:
        rng, topic = self._rng, self._topic()
        replicas: list[int] | None = rng.sample(BROKERS, rng.randint(1, 4))
        if rng.random() < 0.3:
            replicas = None
        elif rng.random() < 0.3:
            replicas = list(self._partition(topic).replicas)
            rng.shuffle(replicas)
        struct = AlterPartitionReassignmentsRequest.ReassignableTopic
        partition = struct.ReassignablePartition(partition_index=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=rng.random() < 0.8,
            topics=[struct(name=topic, partitions=[partition])],
        )
        self._ask(f"reassign {topic} {replicas}", request)

    def _elect(self) -> None:
        struct = ElectLeadersRequest.TopicPartitions
        request = ElectLeadersRequest(
            election_type=self._rng.choice((0, 0, 1)),
            topic_partitions=[struct(topic=self._topic(), partitions=[0])],
        )
        self._ask(f"elect {request!r}", request)

    def _list(self) -> None:
        struct = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        request = ListPartitionReassignmentsRequest(
            topics=[struct(name=topic, partition_indexes=[0]) for topic in TOPICS]
        )
        self._ask("list", request)

    def _assign(self) -> None:
        broker_id, topic = self._broker(), self._topic()
        if broker_id is None:
            return
        directory = directory_of(broker_id, self._rng.choice((0, 1, 2)))
        data = AssignReplicasToDirsRequest.DirectoryData

        def assign(side: Controller) -> Any:
            partitions = [data.TopicData.PartitionData(partition_index=0)]
            topics = [data.TopicData(topic_id=side.topic_ids[topic], partitions=partitions)]
            return side.ask(
                AssignReplicasToDirsRequest(
                    broker_id=broker_id,
                    broker_epoch=side.epochs[broker_id],
                    directories=[data(id=directory, topics=topics)],
                )
            )

        self._pair.step(f"assign {broker_id} {topic}", assign)

    def _configure(self) -> None:
        """Change what elections depend on.

        Not min.insync.replicas where there are eligible leaders: Kafka clears them, but records the
        next changes of such partitions twice.
        """
        name = self._rng.choice(("min.insync.replicas", "unclean.leader.election.enable"))
        value = str(self._rng.randint(1, 3))
        if name.startswith("unclean"):
            value = self._rng.choice(("true", "false"))
        topic = self._topic()
        partition = self._partition(topic)
        if partition.eligible_leader_replicas or partition.last_known_elr:
            return
        request = incremental_change(2, topic, (name, 0, value))
        self._ask(f"configure {topic} {name}={value}", request)

    def _assignments(self) -> list[list[int]]:
        """Draw replicas that are often valid: unknown, repeated or only fenced brokers are not."""
        rng = self._rng
        factor = rng.randint(1, 3)
        drawn = [rng.sample(range(11, 17), factor) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.2:
            drawn[-1] = rng.choice(([], [11, 11], [12], [13, 14, 15]))
        return drawn

    def _create(self) -> None:
        name = f"new{self._rng.randint(0, 5)}"
        topic = assigned_topic(name, *self._assignments())
        if self._rng.random() < 0.2:
            topic.num_partitions = 1
        self._pair.step(
            f"create {topic!r}", lambda side: side.create(CreateTopicsRequest(topics=[topic]))
        )

    def _grow(self) -> None:
        topics = self._pair.ours.harness.image.topics.by_name
        name = f"new{self._rng.randint(0, 5)}"
        count = len(topics[name].partitions) if name in topics else 1
        struct = CreatePartitionsRequest.CreatePartitionsTopic
        assignments = self._assignments()
        more = len(assignments) if self._rng.random() < 0.8 else self._rng.randint(0, 2)
        topic = struct(
            name=name,
            count=count + more,
            assignments=[
                struct.CreatePartitionsAssignment(broker_ids=replicas) for replicas in assignments
            ],
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=5000, validate_only=False)
        self._ask(f"grow {topic!r}", request)

    def _unregister(self) -> None:
        broker_id = self._broker(fenced=True)
        if broker_id is not None:
            self._ask(f"unregister {broker_id}", UnregisterBrokerRequest(broker_id=broker_id))
