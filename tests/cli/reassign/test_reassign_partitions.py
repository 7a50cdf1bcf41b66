"""`ottla reassign-partitions`: plans, throttles, and the moves of a cluster of three nodes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.output.failures import ToolError
from ottla.cli.reassign.actions import Move, planned_moves, throttled_replicas
from ottla.cli.reassign.plans import parse_brokers, parse_executable, parse_topics
from ottla.clients.admin.cluster import PartitionReassignment
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.clients.admin.topics import NewTopic
from ottla.clients.blocking import Admin
from ottla.testing import Cluster
from ottla.types import TopicPartition
from tests.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOO, BAR = TopicPartition("foo", 0), TopicPartition("bar", 1)


def _plan(*entries: tuple[TopicPartition, list[int]], **more: Any) -> str:
    partitions = [{**one._asdict(), "replicas": replicas, **more} for one, replicas in entries]
    return json.dumps({"version": 1, "partitions": partitions})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "Partition reassignment list cannot be empty"),
        ('{"version": 2}', "Not supported version field value 2"),
        ("no json", "The input string is not a valid JSON"),
        (_plan((FOO, [])), "Partition replica list cannot be empty"),
        (_plan((FOO, [1]), (FOO, [2])), "duplicate topic partitions: foo-0"),
        (_plan((FOO, [1, 1])), "duplicate entries: foo-0 contains multiple entries for 1"),
        (
            _plan((FOO, [1, 2]), log_dirs=["any"]),
            "Size of replicas list [1, 2] is different from size of log dirs list [any]",
        ),
    ],
)
def test_plans_that_are_refused(text: str, problem: str) -> None:
    """A plan for --execute names each partition once, with distinct replicas."""
    with pytest.raises(ToolError, match=re.escape(problem)):
        parse_executable(text)


def test_arguments_of_generate() -> None:
    """Neither topics nor brokers may be repeated."""
    assert parse_brokers("3,1") == [3, 1]
    with pytest.raises(ToolError, match=r"contains duplicate entries: \[1\]"):
        parse_brokers("1,1")
    with pytest.raises(ToolError, match='For input string: "a"'):
        parse_brokers("a")
    with pytest.raises(ToolError, match=r"contains duplicate entries: \[foo\]"):
        parse_topics('{"topics": [{"topic": "foo"}, {"topic": "foo"}]}')


def test_throttled_replicas() -> None:
    """Leaders are throttled at the sources, followers at the destinations that are not sources."""
    active = {BAR: PartitionReassignment((2, 1, 3), (2,), (3,))}
    moves = planned_moves(active, {FOO: (3, 2)}, {FOO: (1, 2)})
    assert moves[BAR] == Move(frozenset({1, 3}), frozenset({2}))
    assert throttled_replicas(moves) == {
        "bar": {
            "leader.replication.throttled.replicas": "1:1,1:3",
            "follower.replication.throttled.replicas": "1:2",
        },
        "foo": {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        },
    }


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("--list --verify", "Command must include exactly one action: --generate, --execute, "),
        ("--list", "Please specify either --bootstrap-server or --bootstrap-controller"),
        ("--verify --bootstrap-server h:1", 'required argument "[reassignment-json-file]"'),
        (
            "--list --bootstrap-server h:1 --throttle 1",
            'Option "[throttle]" can\'t be used with action "[list]"',
        ),
    ],
)
def test_flags_that_are_refused(
    flags: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each action has its own flags."""
    status, _, error = run(capsys, "reassign-partitions", *flags.split())
    assert status == 1
    assert problem in error


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run three nodes with a topic on two of them."""
    with Cluster(nodes=3) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([NewTopic("foo", -1, -1, {}, {0: [1, 2], 1: [2, 3]})])
        yield running


def _wait_for_setting(admin: Admin, topic: ConfigResource, value: str) -> None:
    """Ask until the broker that answers has applied the change."""
    found: Any = None
    while found is None or found["follower.replication.throttled.replicas"].value != value:
        found = admin.describe_configs([topic])[topic]


def test_a_move_with_throttle(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--execute sets throttles and moves; --verify tells the end and removes the throttles."""
    plan = tmp_path / "plan.json"
    plan.write_text(_plan((FOO, [3, 2])))

    def tool(*flags: str) -> tuple[int, str]:
        servers = ("--bootstrap-server", cluster.bootstrap)
        status, text, _ = run(capsys, "reassign-partitions", *flags, *servers)
        return status, text

    status, text = tool("--execute", "--reassignment-json-file", str(plan), "--throttle", "9000")
    assert (status, text.splitlines()[-2:]) == (
        0,
        [
            "The inter-broker throttle limit was set to 9000 B/s",
            "Successfully started partition reassignment for foo-0",
        ],
    )
    topic = ConfigResource(ResourceType.TOPIC, "foo")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        _wait_for_setting(admin, topic, "0:3")
        while admin.list_partition_reassignments():
            pass
        status, text = tool("--verify", "--reassignment-json-file", str(plan))
        assert (status, text.splitlines()) == (
            0,
            [
                "Status of partition reassignment:",
                "Reassignment of partition foo-0 is completed.",
                "",
                "Clearing broker-level throttles on brokers 1,2,3",
                "Clearing topic-level throttles on topic foo",
            ],
        )
        _wait_for_setting(admin, topic, "")
    assert tool("--list") == (0, "No partition reassignments found.\n")
    assert tool("--list", "--json") == (0, "[]\n")
    status, text = tool("--cancel", "--reassignment-json-file", str(plan), "--preserve-throttles")
    assert status == 0
    assert text.splitlines() == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
    ]


def test_log_directories_of_a_plan(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed assignment names directories and can be executed; unknown ones are refused."""
    plan = tmp_path / "plan.json"
    plan.write_text(_plan((TopicPartition("foo", 1), [2, 3])))
    flags = ("--reassignment-json-file", str(plan), "--bootstrap-server", cluster.bootstrap)
    _, text, _ = run(capsys, "reassign-partitions", "--execute", *flags)
    plan.write_text(text.splitlines()[2])
    paths = json.loads(text.splitlines()[2])["partitions"][0]["log_dirs"]
    assert [path.rpartition("-")[2] for path in paths] == ["2", "3"]
    status, text, _ = run(capsys, "reassign-partitions", "--execute", *flags)
    assert status == 0
    assert f"moving log directory to {paths[1]} for replica foo-1 with broker 3 \n" in text
    status, text, _ = run(capsys, "reassign-partitions", "--verify", *flags)
    assert (status, text.splitlines()[2:4]) == (
        0,
        [
            "Reassignment of replica foo-1-2 completed successfully.",
            "Reassignment of replica foo-1-3 completed successfully.",
        ],
    )
    plan.write_text(_plan((TopicPartition("foo", 1), [2]), log_dirs=["/elsewhere"]))
    status, text, _ = run(capsys, "reassign-partitions", "--execute", *flags)
    assert status == 1
    assert text.endswith("Error: Failed to alter dir for foo-1-2\n")


def test_a_proposal(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--generate keeps the number of replicas and uses only the brokers given."""
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "foo"}]}')
    flags = ("--generate", "--topics-to-move-json-file", str(topics))
    servers = ("--bootstrap-server", cluster.bootstrap)
    status, text, _ = run(capsys, "reassign-partitions", *flags, "--broker-list", "1,3", *servers)
    lines = text.splitlines()
    assert (status, lines[0]) == (0, "Current partition replica assignment")
    proposed = json.loads(lines[-1])["partitions"]
    assert [sorted(one["replicas"]) for one in proposed] == [[1, 3], [1, 3]]
    status, text, _ = run(capsys, "reassign-partitions", *flags, "--broker-list", "1", *servers)
    assert status == 1
    assert "Error: The target replication factor of 2 cannot be reached because only 1" in text


def test_a_plan_for_an_unknown_broker(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started."""
    plan = tmp_path / "plan.json"
    servers = ("--bootstrap-server", cluster.bootstrap)
    for partition, replicas, problem in (
        (FOO, [1, 9], "Error: Unknown broker id 9"),
        (BAR, [1], "Topic bar not found."),
        (TopicPartition("foo", 7), [1], "Unable to find partition: foo-7"),
    ):
        plan.write_text(_plan((partition, replicas)))
        flags = ("--execute", "--reassignment-json-file", str(plan))
        status, text, _ = run(capsys, "reassign-partitions", *flags, *servers)
        assert status == 1
        assert text.startswith("Error: ")
        assert text.endswith(f"{problem}\n")
