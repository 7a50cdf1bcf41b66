"""Controllers of both kinds in one quorum: voters are added and removed by both tools.

Kafka: MetadataQuorumCommand, KafkaRaftClient (KIP-853, KIP-1186).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from ottla.testing.cluster import Cluster
from tests.conformance.kafka import RealKafka
from tests.conformance.tool_pairs import Said, ToolJvm, our_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ottla.clients.admin.quorum import QuorumInfo
    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
LIMIT_S = 120.0
JOINING = 2
PATIENT = {"controller.quorum.fetch.timeout.ms": "60000"}
"""Of two voters each is needed: a leader that misses the other one resigns after this time."""
JOINING_SOON = {"controller.quorum.fetch.timeout.ms": "15000"}
"""A controller that is to join by itself asks for it after this time."""
TOOL = "metadata-quorum"


@pytest.fixture(scope="module")
def tool_jvm(kafka: Kafka) -> Iterator[ToolJvm]:
    """Run Kafka's tools."""
    jvm = ToolJvm(kafka)
    yield jvm
    jvm.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Run an Ottla node, the only voter of its quorum."""
    with Cluster(data_dir=str(tmp_path / "ottla"), config=PATIENT) as running:
        yield running


def _controller(kafka: Kafka, cluster: Cluster, directory: Path, **properties: str) -> RealKafka:
    """Format a real controller that is to join our quorum."""
    directory.mkdir()
    controller = cluster.run(lambda one: one.addresses["CONTROLLER"])
    given = JOINING_SOON | {name.replace("_", "."): value for name, value in properties.items()}
    node = RealKafka(kafka, directory, given)
    cluster_id = cluster.run(lambda one: one.cluster_id)
    node.format_to_join(cluster_id, controller, JOINING, "controller", "-N")
    return node


def _await(admin: Admin, is_so: Callable[[QuorumInfo], bool]) -> QuorumInfo:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        found = admin.describe_metadata_quorum()
        if is_so(found):
            return found
        time.sleep(0.1)
    raise AssertionError(str(admin.describe_metadata_quorum()))


def _follows(info: QuorumInfo) -> bool:
    return any(
        one.replica_id == JOINING and one.log_end_offset >= info.high_watermark > 0
        for one in (*info.voters, *info.observers)
    )


def _plain(lines: list[str]) -> list[str]:
    """Mask what moves between two calls: offsets, lags and times, with the widths of columns."""
    text = "\n".join(lines)
    text = re.sub(r"((HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs):\s+)-?\d+", r"\1N", text)
    text = re.sub(r"(?<=\t)-?\d+( ms ago)?(?= *\t)", r"N\1", text)
    return [re.sub(r" +", " ", line) for line in text.split("\n")]


DESCRIPTIONS = (
    "describe --status",
    "describe --replication",
    "describe --replication --human-readable",
)


def _described(jvm: ToolJvm, *address: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return what both tools print of the quorum."""
    found = {}
    for call in DESCRIPTIONS:
        words = [*address, *call.split()]
        theirs, ours = jvm.run(TOOL, words), our_tool(TOOL, words)
        assert (theirs.status, theirs.err) == (ours.status, ours.err)
        found[call] = _plain(theirs.out), _plain(ours.out)
    return found


def test_both_tools_add_and_remove_a_real_controller(
    kafka: Kafka, cluster: Cluster, tool_jvm: ToolJvm, tmp_path: Path
) -> None:
    """It follows our leader as an observer, then votes, then leaves; each time with equal words."""
    node = _controller(kafka, cluster, tmp_path / "kafka")
    node.launch()
    host, port = cluster.run(lambda one: one.addresses["CONTROLLER"])
    brokers = ("--bootstrap-server", cluster.bootstrap)
    controllers = ("--bootstrap-controller", f"{host}:{port}")
    add = ["--command-config", str(node.properties_file), "add-controller"]
    said: list[list[Said]] = []
    try:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            for run, address in ((tool_jvm.run, brokers), (our_tool, controllers)):
                observed = _await(admin, _follows)
                key = next(one for one in observed.observers if one.replica_id == JOINING)
                for theirs, ours in _described(tool_jvm, *address).values():
                    assert theirs == ours
                added = run(TOOL, [*address, *add])
                voters = _await(admin, lambda info: len(info.voters) == 2 and _follows(info))
                assert not voters.observers
                for theirs, ours in _described(tool_jvm, *address).values():
                    assert theirs == ours
                again = run(TOOL, [*address, *add])
                admin.create_topics([f"by-two-{len(said)}"])
                remove = ["remove-controller", "-i", str(JOINING), "-d", str(key.directory_id)]
                removed = run(TOOL, [*address, *remove])
                _await(admin, lambda info: len(info.voters) == 1)
                gone = run(TOOL, [*address, *remove])
                said.append([added, again, removed, gone])
    finally:
        node.kill()
    assert [one.status for one in said[0]] == [0, 1, 0, 1]
    assert said[0] == said[1]


def test_a_real_controller_joins_our_quorum_by_itself(
    kafka: Kafka, cluster: Cluster, tmp_path: Path
) -> None:
    """controller.quorum.auto.join.enable; with a new directory it takes its old one's place."""
    auto = {"controller_quorum_auto_join_enable": "true"}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        first = _controller(kafka, cluster, tmp_path / "first", **auto)
        first.launch()
        try:
            before = _await(admin, lambda info: len(info.voters) == 2 and _follows(info))
            admin.create_topics(["by-two"])
        finally:
            first.kill()
        old = next(one for one in before.voters if one.replica_id == JOINING)
        assert old.directory_id
