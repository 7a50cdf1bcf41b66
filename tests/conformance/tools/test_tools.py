"""The same call of Kafka's tools and of ours, on one real node: the same text.

Ids, times and ports differ from run to run and are blanked; lists that Java prints in the order
of its hash tables are compared sorted.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ottla import Admin, TopicPartition
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from tests.conformance.kafka import RealKafka

pytestmark = pytest.mark.conformance

CLASSES = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}

_BLANKED = (
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: *"),
    (re.compile(r"CreateTime:\d+"), "CreateTime:*"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "*"),
)
# What Java alone prints: log lines, stack traces, a hint about another protocol.
_JAVA_ONLY = re.compile(
    r"^(\s*at [\w.]+[.$]|Caused by|java\.|org\.apache\.kafka\.common\.errors|SLF4J)|^\s*$"
    r"|^The consumer rebalance protocol"
    r"|^New offset \("  # Kafka's tool logs this, and the jars have no logger
)


class Answer(NamedTuple):
    """What a tool printed, both channels together, and how it ended."""

    lines: list[str]
    status: int


def java_tool(node: RealKafka, tool: str, *arguments: str, stdin: str | None = None) -> Answer:
    """Run Kafka's tool."""
    done = node.kafka.run(
        CLASSES[tool],
        "--bootstrap-server",
        node.bootstrap,
        *arguments,
        stdin=stdin,
        check=False,
    )
    return _answer(done)


def our_tool(node: RealKafka, tool: str, *arguments: str, stdin: str | None = None) -> Answer:
    """Run ours."""
    command = [sys.executable, "-m", "ottla.cli.main", tool, "--bootstrap-server", node.bootstrap]
    done = subprocess.run(
        [*command, *arguments],
        input=stdin or "",
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return _answer(done)


def _answer(done: subprocess.CompletedProcess[str]) -> Answer:
    text = done.stdout + done.stderr
    for pattern, blank in _BLANKED:
        text = pattern.sub(blank, text)
    text = re.sub(r"^Option +Description.*", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^Usage: ottla.*?^Error: ", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip() for line in text.splitlines() if not _JAVA_ONLY.search(line)]
    return Answer(sorted(_sorted_settings(line) for line in lines), done.returncode)


def _sorted_settings(line: str) -> str:
    """Put the settings of a described topic in order."""
    head, found, settings = line.partition("Configs: ")
    if not found:
        return line
    return head + found + ",".join(sorted(re.split(r",(?=[\w.]+=)", settings)))


def same(node: RealKafka, tool: str, *arguments: str) -> Answer:
    """Run a reading call with both tools and compare."""
    theirs = java_tool(node, tool, *arguments)
    ours = our_tool(node, tool, *arguments)
    assert ours.lines == theirs.lines
    assert ours.status == theirs.status
    return ours


@pytest.fixture(scope="module")
def node(real_kafka: RealKafka) -> RealKafka:
    """Give the session's node some topics, records and a group at rest."""
    create = ("--create", "--topic", "tools-a", "--partitions", "2")
    our_tool(real_kafka, "topics", *create)
    settings = ("--config", "retention.ms=5000000", "--config", "cleanup.policy=compact,delete")
    our_tool(real_kafka, "topics", "--create", "--topic", "tools-b", *settings)
    produce = ("--topic", "tools-b", "--reader-property", "parse.key=true")
    keys = ("--reader-property", "key.separator=:")
    our_tool(real_kafka, "console-producer", *produce, *keys, stdin="k1:v1\nk2:v2\n")
    consume = ("--topic", "tools-b", "--group", "tools-group", "--from-beginning")
    java_tool(real_kafka, "console-consumer", *consume, "--max-messages", "2")
    return real_kafka


@pytest.mark.parametrize(
    "arguments",
    [
        ("--describe", "--topic", "tools-a"),
        ("--describe", "--topic", "tools-(a|b)"),
        ("--describe", "--topic", "tools-b", "--topics-with-overrides"),
        ("--describe", "--topic", "tools-a,tools-b", "--under-replicated-partitions"),
        ("--describe", "--topic", "tools-a", "--at-min-isr-partitions"),
        ("--describe", "--topic", "tools-none"),
        ("--describe", "--topic", "tools-none", "--if-exists"),
        ("--describe", "--topic-id", "abc"),
        ("--list", "--topic", "tools-.*"),
        ("--list", "--topic", "tools-none"),
        ("--list", "--exclude-internal", "--topic", "tools-.*|__.*"),
        ("--create", "--topic", "tools-a"),
        ("--create", "--topic", "tools-a", "--if-not-exists"),
        ("--create", "--topic", "tools-c", "--config", "retention.m=5"),
        ("--create", "--topic", "tools-c", "--config", "retention.ms=x"),
        ("--create", "--topic", "tools-c", "--replication-factor", "3"),
        ("--create", "--topic", "tools-c", "--replication-factor", "0"),
        ("--create", "--topic", "tools-c", "--partitions", "0"),
        ("--create", "--topic", "tools c"),
        ("--create", "--topic", "tools.c/x"),
        ("--create", "--topic", "tools-c", "--replica-assignment", "1:1"),
        ("--create", "--topic", "tools-c", "--replica-assignment", "7"),
        ("--alter", "--topic", "tools-a", "--partitions", "1"),
        ("--alter", "--topic", "tools-none", "--partitions", "1"),
        ("--delete", "--topic", "tools-none"),
        ("--delete", "--topic", "tools-none", "--if-exists"),
    ],
    ids=" ".join,
)
def test_topics(arguments: tuple[str, ...], node: RealKafka) -> None:
    """Both tools say the same about topics, and refuse the same."""
    same(node, "topics", *arguments)


def test_topics_are_made_and_deleted_alike(node: RealKafka) -> None:
    """Creating, growing and deleting print the same lines."""
    for tool, name in ((java_tool, "tools_x"), (our_tool, "tools_y")):
        created = tool(node, "topics", "--create", "--topic", name, "--partitions", "2")
        assert created.status == 0
        assert created.lines[0] == f"Created topic {name}."
        assert created.lines[1].startswith("WARNING: Due to limitations in metric names")
        assert tool(node, "topics", "--alter", "--topic", name, "--partitions", "3") == ([], 0)
        assert len(tool(node, "topics", "--describe", "--topic", name).lines) == 4
        assert tool(node, "topics", "--delete", "--topic", name) == ([], 0)


@pytest.mark.parametrize(
    "properties",
    [
        (),
        ("print.key=true", "print.partition=true", "print.offset=true"),
        ("print.timestamp=true", "print.epoch=true", "print.headers=true", "key.separator=|"),
        ("print.value=false", "print.key=true", "line.separator=;\n"),
    ],
    ids=" ".join,
)
def test_console_consumer(properties: tuple[str, ...], node: RealKafka) -> None:
    """Records are printed alike under every property of the formatter."""
    flags = [part for one in properties for part in ("--formatter-property", one)]
    arguments = ("--topic", "tools-b", "--partition", "0", "--offset", "earliest")
    theirs = java_tool(node, "console-consumer", *arguments, "--max-messages", "2", *flags)
    ours = our_tool(node, "console-consumer", *arguments, "--max-messages", "2", *flags)
    assert ours == theirs


@pytest.mark.parametrize(
    ("properties", "lines"),
    [
        ((), "plain\n\nlast without end"),
        (("parse.key=true", "key.separator=:"), "a:b:c\n:\n"),
        (("parse.key=true", "key.separator=:", "null.marker=NULL"), "NULL:v\nk:NULL\n"),
        (("parse.headers=true", "parse.key=true"), "h1:v1,h2:v2\tk\tv\nh:\tk2\tv2\n"),
        (("parse.key=true", "ignore.error=true"), "no key here\nk\tv\n"),
        (("parse.key=true",), "k\tv\nno key here\nk3\tv3\n"),
    ],
)
def test_console_producer(
    properties: tuple[str, ...], lines: str, node: RealKafka, request: pytest.FixtureRequest
) -> None:
    """The same lines become the same records, whichever tool sent them."""
    flags = [part for one in properties for part in ("--reader-property", one)]
    number = abs(hash(request.node.name)) % 1_000_000
    seen = []
    for tool, letter in ((java_tool, "j"), (our_tool, "o")):
        topic = f"tools-produced-{letter}{number}"
        our_tool(node, "topics", "--create", "--topic", topic)
        sent = tool(node, "console-producer", "--topic", topic, *flags, stdin=lines)
        printed = [part for one in ("key", "headers", "offset") for part in (
            "--formatter-property", f"print.{one}=true")]  # fmt: skip
        there = TopicPartition(topic, 0)
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            end = admin.list_offsets({there: -1})[there]
        assert not isinstance(end, KafkaError)
        where = ("--topic", topic, "--partition", "0", "--offset", "earliest")
        count = ("--max-messages", str(end.offset))
        read = end.offset and our_tool(node, "console-consumer", *where, *count, *printed)
        seen.append((sent, read))
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--describe", "--group", "tools-group"),
        ("--describe", "--group", "tools-group", "--members"),
        ("--describe", "--group", "tools-group", "--members", "--verbose"),
        ("--describe", "--group", "tools-group", "--state"),
        ("--describe", "--group", "tools-group", "--state", "--verbose"),
        ("--describe", "--group", "tools-group", "--offsets", "--verbose"),
        ("--describe", "--group", "tools-none"),
        ("--list",),
        ("--list", "--state"),
        ("--list", "--type"),
        ("--list", "--state", "--type"),
        ("--list", "--state", "stable"),
        ("--delete", "--group", "tools-none"),
        ("--delete-offsets", "--group", "tools-group", "--topic", "tools-none"),
        ("--delete-offsets", "--group", "tools-group", "--topic", "tools-b:5"),
        ("--reset-offsets", "--group", "tools-group", "--topic", "tools-b", "--to-earliest"),
        ("--reset-offsets", "--group", "tools-group", "--all-topics", "--to-latest", "--dry-run"),
        ("--reset-offsets", "--group", "tools-group", "--all-topics", "--to-current", "--dry-run"),
        ("--reset-offsets", "--group", "tools-group", "--all-topics", "--shift-by", "-1"),
        (
            "--reset-offsets",
            "--group",
            "tools-group",
            "--all-topics",
            "--shift-by",
            "9",
            "--dry-run",
        ),
        ("--reset-offsets", "--group", "tools-group", "--topic", "tools-b:0", "--to-offset", "1"),
        ("--reset-offsets", "--group", "tools-group", "--topic", "tools-b:7", "--to-offset", "1"),
        (
            "--reset-offsets",
            "--group",
            "tools-new",
            "--topic",
            "tools-a",
            "--to-latest",
            "--dry-run",
        ),
        ("--reset-offsets", "--group", "tools-group", "--all-topics", "--to-earliest", "--export"),
        ("--reset-offsets", "--group", "tools-group", "--to-earliest", "--dry-run"),
        (
            *("--reset-offsets", "--group", "tools-group", "--topic", "tools-b", "--dry-run"),
            *("--to-datetime", "2020-01-01T00:00:00.000"),
        ),
        (
            *("--reset-offsets", "--group", "tools-group", "--topic", "tools-b", "--dry-run"),
            *("--to-datetime", "2090-01-01T00:00:00.000"),
        ),
        (
            *("--reset-offsets", "--group", "tools-group", "--topic", "tools-b", "--dry-run"),
            *("--by-duration", "P1D"),
        ),
    ],
    ids=" ".join,
)
def test_consumer_groups(arguments: tuple[str, ...], node: RealKafka) -> None:
    """Both tools say the same about groups, and refuse the same."""
    same(node, "consumer-groups", *arguments)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("topics", ()),
        ("topics", ("--create",)),
        ("topics", ("--list", "--create")),
        ("topics", ("--create", "--topic", "a", "--partitions", "2", "--replica-assignment", "1")),
        ("topics", ("--list", "--partitions", "2")),
        ("topics", ("--describe", "--if-not-exists")),
        ("topics", ("--alter", "--topic", "a", "--replication-factor", "2")),
        ("console-producer", ()),
        ("console-consumer", ()),
        ("console-consumer", ("--topic", "a", "--include", "b")),
        ("console-consumer", ("--topic", "a", "--offset", "5")),
        ("console-consumer", ("--topic", "a", "--partition", "0", "--group", "g")),
        ("console-consumer", ("--topic", "a", "--partition", "0", "--offset", "-5")),
        ("consumer-groups", ()),
        ("consumer-groups", ("--list", "--state", "nonsense")),
        ("consumer-groups", ("--list", "--type", "nonsense")),
        ("consumer-groups", ("--describe",)),
        ("consumer-groups", ("--describe", "--group", "a", "--members", "--state")),
        ("consumer-groups", ("--reset-offsets", "--group", "a", "--dry-run", "--execute")),
        ("consumer-groups", ("--delete-offsets", "--group", "a")),
    ],
    ids=str,
)
def test_wrong_calls(tool: str, arguments: tuple[str, ...], node: RealKafka) -> None:
    """A wrong call ends with status 1 and with the sentence that Kafka's tool begins with."""
    theirs = node.kafka.run(
        CLASSES[tool], "--bootstrap-server", node.bootstrap, *arguments, stdin="", check=False
    )
    sentence = next(
        line
        for line in (theirs.stdout + theirs.stderr).splitlines()
        if line.strip() and not line.startswith("SLF4J")
    )
    ours = our_tool(node, tool, *arguments)
    assert (ours.status, theirs.returncode) == (1, 1)
    assert any(_words(sentence) <= _words(line) for line in ours.lines)


def _words(sentence: str) -> set[str]:
    """Split a sentence: Java prints sets of options in no fixed order."""
    return set(re.findall(r"[\w\[\]-]+", sentence))
