"""Tools that describe the cluster: their output for given responses, and what they refuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.commands.broker_api_versions import broker_text
from ottla.cli.commands.cluster import cluster, endpoint_lines
from ottla.cli.commands.consumer_groups import re2_problem
from ottla.cli.commands.delete_records import parse_offsets
from ottla.cli.commands.features import feature_lines, features
from ottla.cli.commands.get_offsets import PartitionFilter, parse_rule
from ottla.cli.commands.leader_election import parse_partitions
from ottla.cli.commands.metadata_quorum import (
    metadata_quorum,
    replication_rows,
    status_lines,
)
from ottla.cli.commands.storage import storage
from ottla.cli.main import COMMANDS, main
from ottla.cli.options.releases import parse_level, parse_release, release_levels
from ottla.cli.output.failures import ToolError, java_class
from ottla.cli.output.tables import table
from ottla.clients.admin.cluster import (
    ClusterDescription,
    FeatureRange,
    Features,
    LogDirDescription,
    ReplicaInfo,
)
from ottla.clients.admin.quorum import QuorumInfo, ReplicaState, VoterEndpoint
from ottla.errors import ErrorCode, KafkaError
from ottla.types import Node, TopicPartition, Uuid
from ottla.views.log_dirs import log_dirs_document
from tests.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path

    import click

DIRECTORY = Uuid(bytes(15) + b"\x07")
LEADER = ReplicaState(1, DIRECTORY, 100, 5_000, 5_000)
FOLLOWER = ReplicaState(2, Uuid(), 90, 4_000, None)
QUORUM = QuorumInfo(
    1, 3, 99, (LEADER, FOLLOWER), (), {1: (VoterEndpoint("CONTROLLER", "::1", 9093),)}
)
TOOLS = (
    "broker-api-versions",
    "client-metrics",
    "cluster",
    "configs",
    "delete-records",
    "features",
    "get-offsets",
    "groups",
    "leader-election",
    "log-dirs",
    "metadata-quorum",
    "reassign-partitions",
    "transactions",
)


@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_explains_itself(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--help ends with examples that can be copied."""
    assert tool in COMMANDS
    status, text, _ = run(capsys, tool, "--help")
    assert status == 0
    assert f"ottla {tool} " in text.partition("Examples:")[2]


@pytest.mark.parametrize(
    "group", [cluster, features, metadata_quorum, storage], ids=lambda group: group.name
)
def test_each_subcommand_explains_itself(group: click.Group) -> None:
    """Its help ends with examples that call it, and with no others."""
    for name, command in group.commands.items():
        _, *examples = (command.epilog or "").split("\n  ottla ")
        assert examples, (group.name, name)
        for one in examples:
            given = one.replace("\\\n", " ").split()
            assert given[0] == group.name
            assert name in given, one


@pytest.mark.parametrize("tool", ["features", "metadata-quorum"])
def test_help_of_a_subcommand_needs_no_server(
    tool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in Kafka; the flag of the server stands before the subcommand."""
    status, text, _ = run(capsys, tool, "describe", "--help")
    assert status == 0
    assert text.startswith(f"Usage: ottla {tool} describe")


def test_status_of_the_quorum() -> None:
    """Lag is that of the slowest voter; unknown times make it unknown."""
    lines = status_lines("c1", QUORUM)
    assert lines[0] == "ClusterId:              c1"
    assert lines[4:6] == ["MaxFollowerLag:         10", "MaxFollowerLagTimeMs:   -1"]
    assert lines[6] == (
        f'CurrentVoters:          [{{"id": 1, "directoryId": "{DIRECTORY}", '
        '"endpoints": ["CONTROLLER://[::1]:9093"]}, {"id": 2}]'
    )


def test_replication_of_the_quorum() -> None:
    """The leader comes first; times are absolute or relative to now."""
    rows = replication_rows(QUORUM, now_ms=5_200, human_readable=True)
    assert rows[0] == ("1", str(DIRECTORY), "100", "0", "200 ms ago", "200 ms ago", "Leader")
    assert rows[1][3:] == ("10", "1200 ms ago", "-1", "Follower")
    plain = replication_rows(QUORUM, now_ms=5_200, human_readable=False)
    assert plain[1][4] == "4000"
    assert table([("a", "bb"), ("ccc", "d")]) == ["a  \tbb\t", "ccc\td \t"]


def test_endpoints() -> None:
    """Only brokers have a state."""
    found = ClusterDescription(
        "c", None, (Node(1, "h", 9, None), Node(2, "h", 9, "r")), frozenset({2}), 0
    )
    lines = endpoint_lines(found, of_controllers=False)
    assert lines[1].split() == ["1", "h", "9", "null", "unfenced", "broker"]
    assert lines[2].split() == ["2", "h", "9", "r", "fenced", "broker"]
    assert endpoint_lines(found, of_controllers=True)[1].split()[-2:] == ["null", "controller"]


def test_features() -> None:
    """Levels of metadata.version are shown by release; a feature without a level is at 0."""
    found = Features(
        {"metadata.version": FeatureRange(30, 30)},
        {"metadata.version": FeatureRange(7, 30), "group.version": FeatureRange(0, 1)},
        None,
    )
    lines = feature_lines(found)
    assert lines[0].split()[1:] == [
        "group.version", "SupportedMinVersion:", "0", "SupportedMaxVersion:", "1",
        "FinalizedVersionLevel:", "0", "Epoch:", "-",
    ]  # fmt: skip
    assert "SupportedMinVersion: 3.3-IV3          SupportedMaxVersion: 4.3-IV0 " in lines[1]


def test_releases() -> None:
    """A release determines a metadata.version and the levels of a new cluster."""
    assert [parse_release(text) for text in ("4.3", "4.3.0", "3.9-IV0", "4.4-IV0")] == [
        30, 30, 21, 31,
    ]  # fmt: skip
    with pytest.raises(ToolError, match=r"Unknown metadata\.version '4\.4'"):
        parse_release("4.4")
    assert release_levels(20)["kraft.version"] == 0
    assert release_levels(25)["transaction.version"] == 2
    assert parse_level("a = 3") == ("a", 3)
    with pytest.raises(ToolError, match="equals sign not found"):
        parse_level("a")
    with pytest.raises(ToolError, match="unable to parse b as a short"):
        parse_level("a=b")


def test_feature_dependencies(capsys: pytest.CaptureFixture[str]) -> None:
    """Dependencies need no cluster; unknown features are named."""
    flags = ("--feature", "eligible.leader.replicas.version=1", "--feature", "group.version=1")
    _, text, _ = run(capsys, "features", "feature-dependencies", *flags)
    assert text == (
        "eligible.leader.replicas.version=1 requires:\n    metadata.version=23 (4.0-IV1)\n"
        "group.version=1 has no dependencies.\n"
    )
    status, _, text = run(capsys, "features", "feature-dependencies", "--feature", "foo=1")
    assert (status, text) == (1, "Unknown feature: foo\n")


def test_api_versions() -> None:
    """Known, unknown and missing APIs; a broker that fails is one line."""
    node = Node(1, "h", 9092, None)
    text = broker_text(node, {0: (0, 13), 46: (0, 0), 999: (2, 3)})
    assert text.startswith("h:9092 (id: 1 rack: null isFenced: false) -> (\n\tProduce(0): 0 to 13 ")
    assert "\n\tListPartitionReassignments(46): 0 [usable: 0],\n" in text
    assert "\n\tFetch(1): UNSUPPORTED,\n" in text
    assert text.endswith("\n\tUNKNOWN(999): 2 to 3\n)")
    failed = broker_text(node, KafkaError(ErrorCode.NETWORK_EXCEPTION, "gone"))
    assert failed.endswith("-> ERROR: org.apache.kafka.common.errors.NetworkException: gone")


def test_log_directories() -> None:
    """The document has Kafka's fields; topics may be chosen."""
    replicas = {TopicPartition("a", 0): ReplicaInfo(5, 0, False)}
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    found = {1: [LogDirDescription("/d", error, replicas, -1, -1, False)]}
    document = log_dirs_document(found, [], java_class)
    assert json.dumps(document, separators=(",", ":")) == (
        '{"brokers":[{"broker":1,"logDirs":[{"partitions":[{"partition":"a-0","size":5,'
        '"offsetLag":0,"isFuture":false}],"error":'
        '"org.apache.kafka.common.errors.KafkaStorageException","logDir":"/d"}]}],"version":1}'
    )
    chosen: Any = log_dirs_document(found, ["b"], java_class)
    assert chosen["brokers"][0]["logDirs"][0]["partitions"] == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("t", PartitionFilter("t", None, None)),
        ("t:3", PartitionFilter("t", 3, 4)),
        ("t:1-3", PartitionFilter("t", 1, 3)),
        ("t:1-", PartitionFilter("t", 1, None)),
        ("t:-3", PartitionFilter("t", None, 3)),
        (":2", PartitionFilter(None, 2, 3)),
        ("", PartitionFilter(None, None, None)),
    ],
)
def test_partition_rules(text: str, rule: PartitionFilter) -> None:
    """Topic and each bound are optional."""
    assert parse_rule(text) == rule


def test_rules_take_partitions() -> None:
    """The lower bound is inclusive, the upper exclusive; topics match as a whole."""
    rule = PartitionFilter("a|b", 1, 3)
    taken = [part for part in range(5) if rule.takes(TopicPartition("b", part))]
    assert taken == [1, 2]
    assert not rule.takes(TopicPartition("bb", 1))
    with pytest.raises(ToolError, match="Invalid rule specification: t:x"):
        parse_rule("t:x")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, "Missing partitions field"),
        ([], "Expected JSON object, received"),
        ({"partitions": [], "version": 2}, "Not supported version field value 2"),
        ({"partitions": [{"topic": "t", "partition": 0}]}, "No such field exists: `offset`"),
        ({"partitions": [{"topic": 1, "partition": 0, "offset": 1}]}, "Expected `String`"),
        ({"partitions": [{"topic": "t", "partition": 0, "offset": "x"}]}, "Expected `Long`"),
        (
            {"partitions": [{"topic": "t", "partition": 0, "offset": 1}] * 2},
            "contains duplicate topic partitions: t-0",
        ),
    ],
)
def test_wrong_offset_files(document: Any, text: str) -> None:
    """An invalid file is refused before a request is sent."""
    with pytest.raises(ToolError, match=text):
        parse_offsets(document)


def test_files_of_partitions() -> None:
    """Files of offsets and elections name partitions, each at most once."""
    entry = {"topic": "t", "partition": 2, "offset": -1}
    assert parse_offsets({"partitions": [entry], "version": 1}) == {TopicPartition("t", 2): -1}
    assert parse_partitions({"partitions": [entry]}) == [TopicPartition("t", 2)]
    with pytest.raises(ToolError, match=r"duplicate partitions: \[t-2\]"):
        parse_partitions({"partitions": [entry, entry]})


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("a.*b", None),
        ("(a", "missing closing )"),
        ("[a", "missing closing ]"),
        ("*a", "missing argument to repetition operator"),
        ("(?=a)b", "invalid or unsupported Perl syntax"),
        (r"(a)\1", "invalid escape sequence"),
        (r"\\1", None),
        (r"\(?=", None),
    ],
)
def test_regular_expressions(pattern: str, problem: str | None) -> None:
    """Syntax that RE2 lacks is refused although Python supports it."""
    assert re2_problem(pattern) == problem


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("cluster",), "too few arguments"),
        (("cluster", "cluster-ix"), "Did you mean 'cluster-id'?"),
        (("cluster", "cluster-id"), "--bootstrap-server/-b --bootstrap-controller/-C is required"),
        (("cluster", "unregister", "-b", "h:1"), "argument --id/-i is required"),
        (("features", "describe"), "You must specify either --bootstrap-controller or"),
        (("features", "disable"), "You must specify either --bootstrap-controller or"),
        (("features", "upgrade"), "You must specify either --bootstrap-controller or"),
        (("features", "describe", "--node-id", "x"), "could not convert 'x' to Integer"),
        (("metadata-quorum", "describe", "--status"), "is required"),
        (("metadata-quorum", "remove-controller"), "--bootstrap-controller is required"),
        (("metadata-quorum", "describe", "x"), "unrecognized arguments: 'x'"),
        (("groups", "--list"), 'Missing required argument "[bootstrap-server]"'),
        (("log-dirs", "--bootstrap-server", "h:1"), 'Missing required argument "[describe]"'),
        (("get-offsets", "--bootstrap-server", "h:1", "--time", "x"), "Malformed time argument x"),
        (("leader-election", "--bootstrap-server", "h:1"), "Missing required option(s): election"),
        (("delete-records", "--bootstrap-server", "h:1"), "[offset-json-file]"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_calls(
    arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usage error ends with status 1 and one sentence, before any connection."""
    status, out, err = run(capsys, *arguments)
    assert status == 1
    assert text in out + err


def test_a_quorum_whose_leader_is_no_voter() -> None:
    """A quorum without a leader, as during an election, is reported as such."""
    without = QUORUM._replace(leader_id=-1)
    with pytest.raises(ToolError, match="The leader -1 is none of the voters"):
        status_lines("c1", without)
    with pytest.raises(ToolError, match="The leader -1 is none of the voters"):
        replication_rows(without, now_ms=0, human_readable=False)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("node.id=x\n", 'node.id: For input string: "x"'),
        ("node.id=1\nlisteners=CONTROLLER://h:port\n", "Unable to parse CONTROLLER://h:port"),
    ],
)
def test_the_file_of_a_controller_that_is_wrong(
    lines: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Invalid numbers are named."""
    file = tmp_path / "controller.properties"
    common = (
        f"process.roles=controller\nlog.dirs={tmp_path}\ncontroller.listener.names=CONTROLLER\n"
    )
    file.write_text(common + lines)
    (tmp_path / "meta.properties").write_text("directory.id=wYoxuRJbR4GJW0PUQZCq3g\n")
    words = ("--bootstrap-controller", "h:1", "--command-config", str(file), "add-controller")
    with pytest.raises(SystemExit):
        main(["metadata-quorum", *words, "--dry-run"])
    assert text in capsys.readouterr().err
