"""The plan of a migration: each finding from the facts that cause it, and the order of nodes."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest

from ottla.clients.admin.cluster import FeatureRange
from ottla.config.problems import ConfigProblem
from ottla.types import Uuid
from ottla.views.health import ClusterHealth
from ottla.views.migration import (
    BrokerFacts,
    ClusterFacts,
    DirectoryFacts,
    DiskFacts,
    DynamicFacts,
    NodeFacts,
)
from ottla.views.migration_plan import (
    Impact,
    MigrationFinding,
    MigrationPlan,
    make_plan,
    plan_document,
)
from ottla.views.topics import PartitionFacts, TopicFacts

OBSTACLE, CHECK, IGNORED, WAY_BACK = Impact
HEALTH = ClusterHealth("id", 2, 5, [1, 2, 3], [], [1, 2, 3], [], [], [], 1, 1, [], [], [])
CLUSTER = ClusterFacts(
    HEALTH,
    {node: BrokerFacts(f"h{node}:9092", 30) for node in (1, 2, 3)},
    {"metadata.version": FeatureRange(30, 30)},
    [],
    [],
    {"Consumer": 1},
    0,
    [],
    [],
    0,
    0,
    0,
)
BOTH = ("broker", "controller")
NODES = [NodeFacts(f"/etc/s-{node}.properties", node, BOTH) for node in (1, 2, 3)]


def topic(name: str, factor: int, minimum: int) -> TopicFacts:
    replicas = tuple(range(1, factor + 1))
    partition = PartitionFacts(0, 1, replicas, replicas, None, None)
    return TopicFacts(name, Uuid(), {}, minimum, [partition])


def found(plan: MigrationPlan, impact: Impact) -> list[MigrationFinding]:
    return [finding for finding in plan.findings if finding.impact is impact]


def test_the_active_controller_comes_last_and_is_first_on_the_way_back() -> None:
    """Brokers alone come before controllers; commands are those of each node's file."""
    plan = make_plan(CLUSTER, NODES)
    assert plan.is_ready
    assert [step.node for step in plan.steps] == [1, 3, 2]
    assert [step.node for step in plan.way_back] == [2, 3, 1]
    assert [step.is_active_controller for step in plan.steps] == [False, False, True]
    first = plan.steps[0]
    assert first.stop.startswith("bin/kafka-server-stop.sh --node-id=1;")
    assert first.start.startswith("nohup ottla server-start /etc/s-1.properties ")
    health = "ottla cluster health --bootstrap-server h1:9092,h2:9092,h3:9092"
    assert (plan.before, first.in_sync) == (health, f"until {health}; do sleep 2; done")
    assert plan.way_back[0].stop == "ottla server-stop /etc/s-2.properties"
    assert plan.way_back[0].start == "bin/kafka-server-start.sh -daemon /etc/s-2.properties"
    mixed = [
        NodeFacts("c", 1, ("controller",)),
        NodeFacts("b", 2, BOTH),
        NodeFacts("a", 3, ("broker",)),
    ]
    assert [step.node for step in make_plan(CLUSTER, mixed).steps] == [3, 1, 2]


def test_login_and_paths_are_quoted() -> None:
    """Commands can be pasted."""
    plan = make_plan(CLUSTER, [NodeFacts("/a b/s", 2, BOTH)], "/a b/login")
    assert plan.before.endswith("--command-config '/a b/login'")
    assert "'/a b/s'" in plan.steps[0].start


def test_a_path_with_characters_of_patterns() -> None:
    """The wait for the end of Kafka finds the process by its file, whatever that is called."""
    file = "/srv/c++ (1)/a.b*?|$[1]{2}/s.properties"
    stop = make_plan(CLUSTER, [NodeFacts(file, 2, BOTH)]).steps[0].stop
    pattern = shlex.split(stop)[shlex.split(stop).index("-f") + 1]
    for line, is_found in (
        (f"java kafka.Kafka {file}", True),
        ("java kafka.Kafka /srv/ccc", False),
    ):
        grep = subprocess.run(["grep", "-cE", pattern], input=line.encode(), check=False)
        assert (grep.returncode == 0) is is_found


def test_answers_of_a_cluster_are_quoted() -> None:
    """A host or a feature that a cluster names is one word of a command, and starts none."""
    cluster = CLUSTER._replace(
        brokers={1: BrokerFacts("h1;$(reboot):9092", 29)},
        finalized={"f;reboot": FeatureRange(1, 1)},
    )
    plan = make_plan(cluster, NODES)
    assert plan.before == "ottla cluster health --bootstrap-server 'h1;$(reboot):9092'"
    assert any("--feature 'f;reboot=LEVEL'" in str(finding) for finding in plan.findings)
    assert make_plan(None, NODES).before.endswith(" --bootstrap-server $BOOTSTRAP")


@pytest.mark.parametrize(
    ("health", "text"),
    [
        ({"active_controller": -1}, "no active controller"),
        ({"under_replicated_partitions": ["t-1"]}, "under-replicated"),
        ({"leaderless_partitions": ["t-1"]}, "without leader"),
        ({"offline_log_directories": ["/d of broker 1"]}, "offline log directories"),
        ({"full_log_directories": ["/d of broker 1"]}, "without space"),
        ({"brokers_down": [3]}, "down or fenced"),
        ({"controllers_behind": [3]}, "behind the leader's"),
    ],
)
def test_an_unhealthy_cluster_is_an_obstacle(health: dict[str, Any], text: str) -> None:
    """A broker that is stopped then could take partitions offline."""
    plan = make_plan(CLUSTER._replace(health=HEALTH._replace(**health)), NODES)
    assert not plan.is_ready
    (finding,) = found(plan, OBSTACLE)
    assert text in str(finding)
    assert finding.next_step


@pytest.mark.parametrize(
    ("facts", "impact", "text"),
    [
        (
            {"brokers": {**CLUSTER.brokers, 1: BrokerFacts("h1:9092", 21)}},
            OBSTACLE,
            "node 1: metadata.version up to 3.9-IV0: the broker is older than Kafka 4.0",
        ),
        ({"finalized": {"metadata.version": FeatureRange(31, 31)}}, OBSTACLE, "supports 7 to 30"),
        ({"finalized": {"new.version": FeatureRange(1, 1)}}, OBSTACLE, "does not know"),
        (
            {"brokers": {**CLUSTER.brokers, 1: BrokerFacts("h1:9092", 27)}},
            WAY_BACK,
            "brokers of Kafka 4.1: they do not start any more once features were raised",
        ),
        ({"topics": [topic("single", 1, 1)]}, CHECK, "single: one replica"),
        ({"topics": [topic("strict", 2, 2)]}, CHECK, "strict: min.insync.replicas equals"),
        ({"reassignments": ["t-0"]}, CHECK, "reassignments in progress"),
        ({"hanging_transactions": ["t-0 of producer 7"]}, CHECK, "hanging transactions"),
        ({"disks": [DiskFacts(1, "/d", 1 << 40, 1 << 20)]}, OBSTACLE, "node 1: /d: 1 MB are free"),
        ({"health": HEALTH._replace(controllers=[1])}, CHECK, "1 voters"),
    ],
)
def test_findings_of_the_cluster(facts: dict[str, Any], impact: Impact, text: str) -> None:
    """Versions, features, topics, work in progress, disks and voters."""
    plan = make_plan(CLUSTER._replace(**facts), NODES)
    assert any(text in str(finding) for finding in found(plan, impact)), plan.findings
    assert plan.is_ready is (impact is not OBSTACLE)


@pytest.mark.parametrize(
    ("facts", "impact", "text"),
    [
        (
            {"problems": (ConfigProblem("a.b", "x", "a.b: class x cannot be loaded"),)},
            OBSTACLE,
            "node 1: a.b: class x cannot be loaded. Next: change /etc/s-1.properties",
        ),
        ({"warnings": ("Kafka 4 has removed port: set listeners",)}, IGNORED, "set listeners"),
        ({"missing_directories": ("/far",)}, CHECK, "/far: the directory is not on this machine"),
        ({"directories": (DirectoryFacts("/d", problem="version 0"),)}, OBSTACLE, "version 0"),
        ({"directories": (DirectoryFacts("/d", "id", 3),)}, OBSTACLE, "a directory of node 3"),
        ({"directories": (DirectoryFacts("/d", "x", 1),)}, OBSTACLE, "cluster x, not id"),
        ({"python_classes": ("a=b.C",)}, WAY_BACK, "a=b.C: Kafka cannot load a Python class"),
        (
            {"dynamic": (DynamicFacts("a.b", "2", "1"), DynamicFacts("a.c", None))},
            CHECK,
            "node 1: a.b=2 (file: 1), a.c=(hidden): dynamic settings, which stay in the metadata",
        ),
        (
            {"dynamic": (DynamicFacts("a.b", "x", None, "class x cannot be loaded"),)},
            CHECK,
            "dynamic setting a.b: Ottla does not apply it: class x cannot be loaded. Next: delete",
        ),
        ({"own_settings": ("log.level",)}, WAY_BACK, "log.level: Kafka has no such settings"),
        ({"node_id": 9}, OBSTACLE, "node 9: not in the cluster"),
        ({"node_id": 9}, OBSTACLE, "node 1: no properties file"),
        ({"node_id": 2}, OBSTACLE, "node 2: /etc/s-1.properties, /etc/s-2.properties"),
    ],
)
def test_findings_of_a_node(facts: dict[str, Any], impact: Impact, text: str) -> None:
    """Settings, directories, and what Kafka would miss on the way back."""
    plan = make_plan(CLUSTER, [NODES[0]._replace(**facts), *NODES[1:]])
    assert any(text in str(finding) for finding in found(plan, impact)), plan.findings
    assert plan.is_ready is (impact is not OBSTACLE)


def test_a_plan_without_cluster() -> None:
    """Space is measured here; the order is that of roles and ids, and a check says so."""
    short = DirectoryFacts("/d", "id", 1, None, 1 << 40, 1 << 20)
    plan = make_plan(None, [NODES[0]._replace(directories=(short,))])
    assert "/d: 1 MB are free" in str(found(plan, OBSTACLE)[0])
    assert "no --bootstrap-server" in str(found(plan, CHECK)[0])
    assert "$BOOTSTRAP" in plan.before


def test_long_lists_are_shortened_and_the_document_has_all() -> None:
    """Findings come by impact, obstacles first."""
    topics = [topic(f"t{number}", 1, 1) for number in range(7)]
    cluster = CLUSTER._replace(topics=topics, disks=[DiskFacts(1, "/d", 1 << 40, 0)])
    plan = make_plan(cluster, NODES)
    assert "t4 and 2 more" in str(found(plan, CHECK)[0])
    document: Any = plan_document(plan, cluster, NODES)
    assert document["ready"] is False
    assert len(document["cluster"]["topics"]) == 7
    impacts = [finding["impact"] for finding in document["findings"]]
    assert impacts == ["obstacle", "check", "way back"]
