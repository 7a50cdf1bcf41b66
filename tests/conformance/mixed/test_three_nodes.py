"""Three brokers, two of one kind and one of the other, under load: stops, kills, moves of leaders.

The workloads and their check are those of `scripts/kill_cluster.py`: queues and registers,
acks=all, two of three replicas in sync; in the end the replicas' logs are equal byte for byte.
OTTLA_TEST_LAYOUTS=all runs every layout; otherwise there is one of each test.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, KafkaError, NewTopic, TopicPartition
from tests.conformance.clusters import load
from tests.conformance.clusters.load import wait_for
from tests.conformance.clusters.nodes import KAFKA, LATER, OTTLA, Cluster
from tests.conformance.clusters.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ottla.clients.admin.topics import PartitionDescription
    from tests.conformance.clusters.nodes import Member, Node
    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]
QUORUMS = {"two-ottla": (OTTLA, OTTLA, KAFKA), "two-kafka": (OTTLA, KAFKA, KAFKA)}
CONTROLLERS = {
    "two-kafka-under-ottla": (OTTLA, KAFKA, KAFKA, OTTLA._replace(roles="controller")),
    "two-ottla-under-kafka": (OTTLA, OTTLA, KAFKA, KAFKA._replace(roles="controller")),
}
COUNT = None if os.environ.get("OTTLA_TEST_LAYOUTS") == "all" else 1
RATE = 100
_MAX_ELECTIONS = 8


class Scenario:
    """A running cluster under load, and what is done to it."""

    def __init__(self, trial: Trial, admin: Admin) -> None:
        self.trial = trial
        self.admin = admin
        self.cluster = trial.cluster

    def _partitions(self) -> Sequence[PartitionDescription]:
        found = self.admin.describe_topics([load.TOPIC])[load.TOPIC]
        return () if isinstance(found, KafkaError) else found.partitions

    def move_leaders(self, leader: Node) -> None:
        """Let one broker lead all partitions of the queue."""
        others = [one.node_id for one in self.cluster.brokers if one is not leader]
        partitions = [TopicPartition(load.TOPIC, one) for one in range(load.PARTITIONS)]
        replicas = [leader.node_id, *others]
        self.admin.alter_partition_reassignments(dict.fromkeys(partitions, replicas))

        def are_moved() -> bool:
            self.admin.elect_leaders(partitions=partitions)
            leaders = [one.leader and one.leader.node_id for one in self._partitions()]
            return leaders == [leader.node_id] * load.PARTITIONS

        wait_for(are_moved, f"leaders do not move to node {leader.node_id}")
        self.trial.wait_for_progress(f"leaders moved to node {leader.node_id}")

    def interrupt(self, node: Node, *, kill: bool) -> None:
        """Stop or kill a node, let the others serve, and start it."""
        if kill:
            node.kill()
        else:
            node.stop()

        def others_lead() -> bool:
            leaders = [one.leader and one.leader.node_id for one in self._partitions()]
            return bool(leaders) and None not in leaders and node.node_id not in leaders

        wait_for(others_lead, f"node {node.node_id} is down, and still leads partitions")
        node.start()
        self.trial.wait_until_ready()
        self.trial.wait_for_progress(f"node {node.node_id} was down")
        wait_for(self.trial.is_in_sync, "replicas do not come in sync")

    def interrupt_leaders(self, *, kill_first: bool) -> None:
        """Let a broker of each kind lead everything; stop one of them, kill the other."""
        first, _, last = self.cluster.brokers
        for node, kill in ((first, kill_first), (last, not kill_first)):
            self.move_leaders(node)
            self.interrupt(node, kill=kill)

    def let_control(self, kind: str) -> None:
        """Kill the active controller until one of this kind is active."""
        for _ in range(_MAX_ELECTIONS):
            active = self.cluster.node(self.admin.describe_metadata_quorum().leader_id)
            if active.member.kind == kind:
                return
            self.interrupt(active, kill=True)
        raise AssertionError(f"no node of {kind} becomes the active controller")


@contextmanager
def _running(kafka: Kafka, directory: Path, members: Sequence[Member]) -> Iterator[Scenario]:
    kinds = [one.kind for one in members[:3]]
    only = next(number for number, kind in enumerate(kinds, 1) if kinds.count(kind) == 1)
    cluster = Cluster(directory, members, kafka)
    cluster.format(settings_of={only: LATER})
    trial = Trial(cluster, rate=RATE, seed=1)
    try:
        trial.start()
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            yield Scenario(trial, admin)
        figures = trial.check()
        assert figures["acknowledged"] == figures["sent"] == figures["found"]
    finally:
        cluster.kill()


@pytest.mark.parametrize("members", [*QUORUMS.values()][:COUNT], ids=[*QUORUMS][:COUNT])
def test_one_quorum_of_both_kinds(
    kafka: Kafka, tmp_path: Path, members: tuple[Member, ...]
) -> None:
    """Each kind leads the quorum in turn and creates topics; brokers are stopped and killed."""
    with _running(kafka, tmp_path, members) as scenario:
        for round_, kind in enumerate(("kafka", "ottla")):
            scenario.let_control(kind)
            name = f"by-{kind}-{round_}"
            made = scenario.admin.create_topics([NewTopic(name, 6)])
            assert not isinstance(made[name], Exception), made
        scenario.interrupt_leaders(kill_first=members[1] is OTTLA)


@pytest.mark.parametrize("members", [*CONTROLLERS.values()][:COUNT], ids=[*CONTROLLERS][:COUNT])
def test_brokers_of_both_kinds_under_one_controller(
    kafka: Kafka, tmp_path: Path, members: tuple[Member, ...]
) -> None:
    """The leader of all partitions is stopped or killed, of each kind in turn."""
    brokers = [one._replace(roles="broker") for one in members[:3]]
    with _running(kafka, tmp_path, (*brokers, members[3])) as scenario:
        scenario.interrupt_leaders(kill_first=members[1] is KAFKA)
