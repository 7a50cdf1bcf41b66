"""The same cases on clusters of three nodes: asked of leaders, followers and other brokers.

Kafka: none. Every partition that a case makes first is led by node 1; nodes 2 and 3 follow, or only
node 2 does, so that node 3 has no replica. Requests to a controller go to the active one, node 1,
or to a standby one, node 2.
`python -m tests.conformance.differential.three_nodes [part of a label]` prints what differs.
"""

from __future__ import annotations

import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.types import METADATA_TOPIC
from tests.conformance.applied import wait_until_applied
from tests.conformance.clients.target import wait_until_registered
from tests.conformance.clusters.nodes import KAFKA, OTTLA, Cluster
from tests.conformance.differential import allowed, allowed_elsewhere, placement, quorum_cases, run
from tests.conformance.differential.case import build
from tests.conformance.differential.normalise import Normaliser
from tests.conformance.differential.side import Side
from tests.conformance.kafka import find_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.protocol.schema import Request, Struct
    from tests.conformance.clusters.nodes import Member
    from tests.conformance.differential.case import Case
    from tests.conformance.kafka import Kafka

    Answers: TypeAlias = dict[str, dict[tuple[str, int], run.Outcome]]
    """By role, and by label and version."""

LEADER, FOLLOWER, OTHER = 1, 2, 3
_OFFSETS_PARTITIONS = 5
_TRANSACTIONS_PARTITIONS = 5
_SHARE_STATE_PARTITIONS = 3
_FOLLOWERS = {FOLLOWER: "follower", OTHER: "other"}
_ODD = ("1", "3", "5", "7", "9")
CONSUMER, DEBUGGER, LATEST = -1, -2, -1
SETTINGS = run.SETTINGS | {
    # a machine that is busy must not change leaders or replicas in sync
    "broker.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "60000",
    "controller.quorum.fetch.timeout.ms": "20000",
}
_DISRUPTIVE = (
    "remove_raft_voter.*the last"
    r"|(incremental_)?alter_configs@controller: (null|.* of a broker|.*broker with a name"
    "|.*another broker|unknown kind|resource twice|unknown operation|the same key twice)"
    r"|(incremental_)?alter_configs: (null|resource twice|unknown operation|the same key twice)"
    "|add_raft_voter: (not at its address|has not fetched)"
)
"""They need a quorum of one voter or take seconds, or Kafka's controller takes them for its failure
and resigns."""


class Role(NamedTuple):
    """Which brokers have the partitions, and which node a request is sent to."""

    name: str
    replicas: tuple[int, ...]
    listeners: dict[str, str]


ROLES = (
    Role("leader", (1, 2, 3), {"broker": "broker", "controller": "controller"}),
    Role("follower", (1, 2, 3), {"broker": "follower", "controller": "standby"}),
    Role("other", (1, 2), {"broker": "other"}),
)


class ClusterNormaliser(Normaliser):
    """Names ports by what they are."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__({}, str(cluster.nodes[0].directory.parent))
        self.placed: set[str] = set()
        self._ports = {
            port: f"<{what} port of node {one.node_id}>"
            for one in cluster.nodes
            for what, port in zip(("client", "broker", "controller"), one.ports, strict=True)
        }
        for port, name in self._ports.items():
            self.texts.append((re.compile(rf"(?<!\d){port}(?!\d)"), name))

    def __call__(self, response: Struct | str, version: int) -> Any:
        """Return an answer's fields; the brokers of a topic that Kafka placed are left out."""
        shown = super().__call__(response, version)
        if isinstance(shown, dict) and isinstance(shown.get("brokers"), list):
            shown["brokers"].sort(key=repr)  # Kafka's is the order of a hash map
        if isinstance(shown, dict) and "partitions" in shown:
            name = shown.get("name", shown.get("topic_name"))
            if name not in self.placed:
                for one in shown["partitions"]:
                    self._forget_place(one)
        return shown

    def _forget_place(self, partition: Any) -> None:
        for name in ("leader_id", "replica_nodes", "isr_nodes"):
            if isinstance(partition, dict) and name in partition:
                partition[name] = f"<{name}>"

    def _field(self, name: str, value: Any, version: int) -> Any:
        if name == "port":
            return self._ports.get(value, value)
        if name == "controller_id" and value >= 0:
            return "<controller>"
        return super()._field(name, value, version)


class ClusterSide(Side):
    """Connections to the nodes of one cluster by the part that they have in the cases."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        first = cluster.node(LEADER)
        ports = {"broker": first.ports[0], "controller": first.ports[2]}
        super().__init__(name, ports, str(first.directory / "data"))
        self.check_controller()
        self.ports |= {
            "follower": cluster.node(FOLLOWER).ports[0],
            "other": cluster.node(OTHER).ports[0],
            "controller": cluster.node(LEADER).ports[2],
            "standby": cluster.node(FOLLOWER).ports[2],
        }
        self.close()
        self.normalise: ClusterNormaliser = ClusterNormaliser(cluster)
        self.replicas = (1, 2, 3)
        self.has_others = False
        """Whether topics with an odd number in their names get no replica on the third node."""
        settings = {"cleanup_policy": "compact", "segment_bytes": "104857600"}
        for one in ("broker", "follower", "other"):
            self.until(partial(self._gives_ids, one), f"{one} gives producer ids")
        self.topic(
            "__consumer_offsets", _OFFSETS_PARTITIONS, **settings, compression_type="producer"
        )
        self.topic("__transaction_state", _TRANSACTIONS_PARTITIONS, **settings)
        kept = {"cleanup_policy": "delete", "retention_ms": "-1", "segment_bytes": "104857600"}
        self.topic("__share_group_state", _SHARE_STATE_PARTITIONS, **kept)

    def check_controller(self) -> None:
        """Check that the first node is the active controller."""
        topic = {"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
        found = self.ask(ApiKey.DESCRIBE_QUORUM, topics=[topic]).topics[0].partitions[0]
        assert found.leader_id == LEADER, f"{self.name}: node {found.leader_id} is active"

    def _gives_ids(self, broker: str) -> bool:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        return bool(self._answer(request, 0, listener=broker).error_code == 0)

    def settle(self) -> None:
        """Wait until all brokers have applied all changes that were acknowledged."""
        wait_until_applied(self._ask_all)

    def _ask_all(self, request: Request, version: int) -> Any:
        """Return the answer of all brokers, once they answer the same."""
        if ApiKey(request.message_key) != ApiKey.DESCRIBE_CONFIGS:
            return self._answer(request, version)
        while True:
            brokers = ("broker", "follower", "other")
            answers = [self._answer(request, version, listener=one) for one in brokers]
            if len({one.results[0].configs[0].value for one in answers}) == 1:
                return answers[0]

    def _create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        settings = [
            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
        ]
        assignments = [
            {"partition_index": index, "broker_ids": [*self.replicas]}
            for index in range(partitions)
        ]
        topic = {"name": name, "num_partitions": -1, "replication_factor": -1}
        topic |= {"configs": settings, "assignments": assignments}
        answer = self.ask(ApiKey.CREATE_TOPICS, topics=[topic])
        assert answer.topics[0].error_code == 0, (self.name, answer)
        self.normalise.placed.add(name)
        self.until(lambda: self.is_led(name, partitions), f"{name} is led")

    def produce(self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> int:
        """Produce to the leader; wait until the follower has heard that it is committed."""
        error = super().produce(topic, records, partition=partition, acks=acks)
        if not error:
            self.until(lambda: self._has_followed(topic, partition), f"{topic} is replicated")
        return error

    def end_offset(self, topic: str, partition: int = 0, *, timestamp: int = -1) -> int:
        """Return the end once all records are committed, or what another timestamp stands for."""
        if timestamp == LATEST:
            self.wait_until_committed(topic, partition)
        return super().end_offset(topic, partition, timestamp=timestamp)

    def wait_until_committed(self, topic: str, partition: int) -> None:
        """Wait until all replicas have all records."""
        self.until(lambda: self._is_committed(topic, partition), f"{topic} is committed")

    def wait_until_followed(self, topic: str, partition: int) -> None:
        """Wait until all replicas know that all records are committed."""
        for node_id, listener in _FOLLOWERS.items():
            if node_id in self.replicas_of(topic):
                has_followed = partial(self._has_followed, topic, partition, listener)
                self.until(has_followed, f"{topic} is replicated")

    def wait_until_groups_are_committed(self) -> None:
        """Wait until all replicas have the coordinator's records."""
        for partition in range(_OFFSETS_PARTITIONS):
            self.wait_until_committed("__consumer_offsets", partition)

    def replicas_of(self, topic: str) -> tuple[int, ...]:
        """Return the brokers that get a topic; fewer for a part of the topics of sessions."""
        return self.replicas[:2] if self.has_others and topic.endswith(_ODD) else self.replicas

    def placed(self, key: ApiKey, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a request so that node 1 leads what it creates."""
        if key == ApiKey.CREATE_TOPICS:
            made = [
                placement.placed_topic(one, self.replicas_of(one["name"]))
                for one in fields["topics"]
            ]
        elif key == ApiKey.CREATE_PARTITIONS:
            made = [
                placement.placed_partitions(one, self.replicas_of(one["name"]), self._count)
                for one in fields["topics"]
            ]
        else:
            return fields
        return fields | {"topics": made}

    def _count(self, topic: str) -> int:
        names = [{"name": topic}]
        answer = self.ask(ApiKey.METADATA, topics=names, allow_auto_topic_creation=False)
        return len(answer.topics[0].partitions)

    def _is_committed(self, topic: str, partition: int) -> bool:
        topics = [
            {"name": topic, "partitions": [{"partition_index": partition, "timestamp": LATEST}]}
        ]
        found = {
            self.ask(ApiKey.LIST_OFFSETS, 7, replica_id=one, topics=topics)
            .topics[0]
            .partitions[0]
            .offset
            for one in (CONSUMER, DEBUGGER)  # the high watermark and the end of the log
        }
        return len(found) == 1

    def _has_followed(self, topic: str, partition: int, listener: str = "follower") -> bool:
        end = self.end_offset(topic, partition)
        requested = {"partition": partition, "fetch_offset": end, "partition_max_bytes": 1}
        fields = {"max_wait_ms": 0, "session_epoch": -1, "max_bytes": 1}
        topics = [{"topic": topic, "partitions": [requested]}]
        request = build(FetchRequest, 11, {"topics": topics, **fields})
        answer = self._answer(request, 11, listener=listener)
        return bool(answer.responses[0].partitions[0].high_watermark == end)

    def leave(self) -> None:
        """Take the third replica of every partition away."""
        self.replicas = (LEADER, FOLLOWER)
        names = sorted(self.normalise.placed)
        described = self.ask(
            ApiKey.METADATA,
            topics=[{"name": one} for one in names],
            allow_auto_topic_creation=False,
        )
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": one.partition_index, "replicas": [*self.replicas]}
                    for one in topic.partitions
                ],
            }
            for topic in described.topics
            if topic.partitions
        ]
        self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=topics, timeout_ms=10_000)
        self.until(lambda: not self._moves(), "the third replicas are gone")
        self.settle()

    def _moves(self) -> bool:
        return bool(self.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None).topics)


@contextmanager
def both_clusters(
    kafka: Kafka, directory: Path, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[ClusterSide, ClusterSide]]:
    """Run three nodes of each kind with the same settings for as long as the block lasts."""
    with ExitStack() as stack:
        found = {}
        for name, member in (("Kafka", KAFKA), ("Ottla", OTTLA)):
            found[name] = stack.enter_context(
                _started(directory / name, member, kafka, settings or {})
            )
        for cluster in found.values():
            wait_until_registered(cluster)
        kafkas, ottlas = (ClusterSide(name, one) for name, one in found.items())
        stack.callback(kafkas.close)
        stack.callback(ottlas.close)
        yield kafkas, ottlas


@contextmanager
def _started(
    directory: Path, member: Member, kafka: Kafka, settings: Mapping[str, str]
) -> Iterator[Cluster]:
    cluster = Cluster(directory, (member,) * 3, kafka, has_links=False)
    nodes = (LEADER, FOLLOWER, OTHER)
    cluster.format(settings_of={one: _settings(one) | dict(settings) for one in nodes})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def _settings(node_id: int) -> dict[str, str]:
    """Return those of a node: the first one is the active controller."""
    timeout_ms = "500" if node_id == LEADER else "20000"
    return SETTINGS | {"controller.quorum.election.timeout.ms": timeout_ms}


def cluster_cases() -> list[Case]:
    """Return the cases that leave a quorum of three as it is."""
    return [
        one
        for one in run.all_cases()
        if one not in quorum_cases.CASES and re.fullmatch(_DISRUPTIVE, one.label) is None
    ]


def play(
    side: ClusterSide, cases: list[Case], roles: tuple[Role, ...], *, only_newest: bool
) -> Answers:
    """Ask all cases in all their versions or in the newest, of each role in turn."""
    found = {}
    for role in roles:
        if role.replicas != side.replicas:
            side.leave()
        found[role.name] = {
            (case.label, version): _ask(side, role, case, version)
            for case in cases
            if case.listener in role.listeners
            for version in case.versions()[-1 if only_newest else 0 :]
        }
    side.check_controller()
    return found


def played(
    sides: tuple[ClusterSide, ClusterSide],
    cases: list[Case],
    roles: tuple[Role, ...] = ROLES,
    *,
    only_newest: bool = False,
) -> list[Answers]:
    """Return what both clusters answer, Kafka's first; they are asked at the same time."""
    with ThreadPoolExecutor(2) as pool:
        work = partial(play, cases=cases, roles=roles, only_newest=only_newest)
        return list(pool.map(work, sides))


def _ask(side: ClusterSide, role: Role, case: Case, version: int) -> run.Outcome:
    side.label = re.sub(r"[^a-z0-9]+", "-", f"{role.name} {case.label} {version}")
    try:
        request = case.request(side, version)
        listener = role.listeners[case.listener]
        response = side.answer(request, version, listener=listener, silent=case.silent)
        answer = {"answer": side.normalise(response, version)}
        if case.after is not None:
            answer["after"] = case.after(side, version)
    except (AssertionError, ValueError, IndexError, KeyError, AttributeError) as error:
        return run.Outcome({"failed": f"{type(error).__name__} {error}"}, frozenset())
    allowed.sort(case, answer)
    return run.Outcome(answer, run.error_codes(answer))


def main() -> int:
    """Print the differences of the cases whose label holds the argument."""
    requested = sys.argv[1] if len(sys.argv) > 1 else ""
    roles = tuple(one for one in ROLES if not sys.argv[2:] or one.name in sys.argv[2:])
    cases = [one for one in cluster_cases() if re.search(requested, one.label)]
    with (
        tempfile.TemporaryDirectory() as directory,
        both_clusters(find_kafka(), Path(directory)) as sides,
    ):
        kafka, ottla = played(sides, cases, roles)
    shown = set()
    for role in kafka:
        for one in run.differences(kafka[role], ottla[role]):
            path = re.sub(r"\[\d+\]", "[]", one.path)
            is_new = (role, one.label, path) not in shown
            if is_new and not allowed_elsewhere.is_allowed(role, one):
                shown.add((role, one.label, path))
                print(f"{role}: {one.label} {one}"[:700])
    for entry in allowed_elsewhere.ALLOWED:
        if entry not in allowed_elsewhere.used:
            print("needless:", entry)
    print(len(cases), "cases,", sum(map(len, kafka.values())), "questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
