"""The measuring and the verifiable tools: Kafka's and ours on one real node say the same.

Numbers, times and addresses are blanked; what is left of each line must be equal.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ottla import Admin
from ottla.cli.main import SERVER_HINT
from tests.conformance.clients.node_process import running_node
from tests.conformance.share_groups import begin_at_the_start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conformance.kafka import Kafka, RealKafka

pytestmark = pytest.mark.conformance

TOOLS = {
    "producer-perf-test": "ProducerPerformance",
    "consumer-perf-test": "ConsumerPerformance",
    "end-to-end-latency": "EndToEndLatency",
    "share-consumer-perf-test": "ShareConsumerPerformance",
    "verifiable-producer": "VerifiableProducer",
    "verifiable-consumer": "VerifiableConsumer",
    "replica-verification": "ReplicaVerificationTool",
}
ATTEMPTS = 3
_NUMBER = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?|Infinity|NaN")
_USAGE = re.compile(r"^(usage: |Usage: ottla|Option +Description)")


class Answer(NamedTuple):
    """What a tool printed on its two channels, and how it ended."""

    lines: list[str]
    errors: list[str]
    status: int


def java(node: RealKafka, tool: str, *arguments: str) -> Answer:
    """Run Kafka's tool."""
    command = node.kafka.command(f"org.apache.kafka.tools.{TOOLS[tool]}", *arguments)
    command.insert(1, "-Duser.timezone=UTC")
    return _run(command)


def ours(tool: str, *arguments: str) -> Answer:
    """Run ours."""
    return _run([sys.executable, "-m", "ottla.cli.main", tool, *arguments])


def _run(command: list[str]) -> Answer:
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("SLF4J")]
    return Answer(done.stdout.splitlines(), errors, done.returncode)


def blanked(lines: list[str]) -> list[str]:
    """Put a sign for every number."""
    return [_NUMBER.sub("N", line) for line in lines]


def address(node: RealKafka) -> tuple[str, str]:
    """Return the flag for the node."""
    return ("--bootstrap-server", node.bootstrap)


def with_file(arguments: tuple[str, ...], directory: Path) -> tuple[str, ...]:
    """Put the path of a file of settings for FILE."""
    path = directory / "client.properties"
    path.write_text("client.id=from-a-file\n")
    return tuple(str(path) if one == "FILE" else one for one in arguments)


def same(node: RealKafka, tool: str, *arguments: str) -> Answer:
    """Run both and compare all but numbers."""

    def run() -> tuple[Answer, Answer]:
        return java(node, tool, *arguments), ours(tool, *arguments)

    return compared(run, blanked)


def compared(
    run: Callable[[], tuple[Answer, Answer]], shown: Callable[[list[str]], list[str]]
) -> Answer:
    """Compare both tools' answers; again where one was too late for its time limit."""
    for _ in range(ATTEMPTS):
        theirs, mine = run()
        if (shown(mine.lines), mine.status) == (shown(theirs.lines), theirs.status):
            break
    assert shown(mine.lines) == shown(theirs.lines), theirs.errors
    assert mine.status == theirs.status
    return mine


@pytest.mark.parametrize(
    "arguments",
    [
        ("--record-size", "100"),
        ("--payload-monotonic",),
        ("--record-size", "10", "--warmup-records", "100"),
        ("--record-size", "10", "--command-property", "acks=1", "linger.ms=1"),
        ("--record-size", "10", "--producer-props", "acks=1", "client.id=x"),
        ("--record-size", "10", "--command-config", "FILE"),
        ("--record-size", "10", "--producer.config", "FILE"),
    ],
    ids=" ".join,
)
def test_producer_perf_test(
    arguments: tuple[str, ...], real_kafka: RealKafka, tmp_path: Path
) -> None:
    """Summaries have the same words, and all records are counted."""
    arguments = with_file(arguments, tmp_path)
    flags = ("--topic", "perf", "--num-records", "1000", "--throughput", "-1")
    answer = same(real_kafka, "producer-perf-test", *address(real_kafka), *flags, *arguments)
    assert any(line.startswith("1000 records sent, ") for line in answer.lines)


def test_producer_perf_test_from_a_file(real_kafka: RealKafka, tmp_path: Path) -> None:
    """Payloads are cut at the same places; an empty file is refused."""
    path = tmp_path / "lines"
    path.write_text("\none\n\ntwo\n")
    flags = [*address(real_kafka), "--topic", "perf", "--num-records", "10", "--throughput", "-1"]
    flags += ["--payload-file", str(path)]
    lines = same(real_kafka, "producer-perf-test", *flags).lines
    assert lines[1] == "Number of records read: 3"
    same(real_kafka, "producer-perf-test", *flags, "--payload-delimiter", "[eo]")
    path.write_text("")
    same(real_kafka, "producer-perf-test", *flags)


def test_a_pace_is_held(real_kafka: RealKafka) -> None:
    """--throughput is the highest rate, and each interval is reported."""
    flags = ("--topic", "perf", "--num-records", "300", "--record-size", "10", "--throughput")
    answer = ours(
        *("producer-perf-test", *address(real_kafka), *flags, "200"),
        *("--reporting-interval", "300"),
    )
    rate = float(answer.lines[-1].split()[3])
    assert 0 < rate < 240  # of a busy machine less
    assert len(answer.lines) > 2


def metric_rows(answer: Answer) -> dict[str, str]:
    """Return name and value of each metric that was printed."""
    start = next(at for at, line in enumerate(answer.lines) if line.startswith("Metric Name "))
    rows = [line.rpartition(" : ") for line in answer.lines[start + 1 :]]
    assert len({len(name) for name, _, _ in rows}) == 1
    return {name.rstrip(): value for name, _, value in rows}


SAME_OF_A_PRODUCER = (
    "producer-metrics:record-send-total:{client-id=perf-producer-client}",
    "producer-metrics:record-error-total:{client-id=perf-producer-client}",
    "producer-metrics:record-retry-total:{client-id=perf-producer-client}",
    "producer-metrics:batch-split-total:{client-id=perf-producer-client}",
    "producer-metrics:buffer-total-bytes:{client-id=perf-producer-client}",
    "producer-metrics:requests-in-flight:{client-id=perf-producer-client}",
    "producer-metrics:records-per-request-avg:{client-id=perf-producer-client}",
)
FREE_OF_A_PRODUCER = "producer-metrics:buffer-available-bytes:{client-id=perf-producer-client}"
BUFFER_OF_A_PRODUCER = "producer-metrics:buffer-total-bytes:{client-id=perf-producer-client}"
"""Java's client completes a batch before it gives its 16 KiB back, and may print in between."""
SIZES_OF_A_PRODUCER = (
    "producer-metrics:batch-size-avg:{client-id=perf-producer-client}",
    "producer-topic-metrics:byte-total:{client-id=perf-producer-client, topic=measured}",
)
"""A record takes a byte more when it is made over 63 ms after the first one."""
PARTITION = "{client-id=perf-consumer-client, topic=measured, partition=0}"
SAME_OF_A_CONSUMER = (
    "consumer-coordinator-metrics:assigned-partitions:{client-id=perf-consumer-client}",
    "consumer-coordinator-metrics:join-total:{client-id=perf-consumer-client}",
    "consumer-coordinator-metrics:rebalance-total:{client-id=perf-consumer-client}",
    "consumer-coordinator-metrics:commit-latency-avg:{client-id=perf-consumer-client}",
    f"consumer-fetch-manager-metrics:records-lag:{PARTITION}",
    f"consumer-fetch-manager-metrics:preferred-read-replica:{PARTITION}",
)


def test_metrics_have_kafkas_names_and_sums(real_kafka: RealKafka) -> None:
    """--print-metrics prints rows that Kafka's tools print too, and what must be equal is."""
    flags = ["--topic", "measured", "--num-records", "10", "--print-metrics"]
    writing = ["--record-size", "9", "--throughput", "-1", "--command-property", "linger.ms=10000"]
    arguments = ("producer-perf-test", *address(real_kafka), *flags, *writing)
    theirs, mine = metric_rows(java(real_kafka, *arguments)), metric_rows(ours(*arguments))
    assert len(mine) > 60
    assert set(mine) <= set(theirs)
    assert {n: mine[n] for n in SAME_OF_A_PRODUCER} == {n: theirs[n] for n in SAME_OF_A_PRODUCER}
    assert mine[FREE_OF_A_PRODUCER] == mine[BUFFER_OF_A_PRODUCER]
    kept = float(theirs[BUFFER_OF_A_PRODUCER]) - float(theirs[FREE_OF_A_PRODUCER])
    assert kept in (0, 16_384)
    for name in SIZES_OF_A_PRODUCER:
        assert float(mine[name]) == pytest.approx(float(theirs[name]), abs=10)
    flags[3] = "20"  # both runs
    arguments = ("consumer-perf-test", *address(real_kafka), *flags)
    theirs, mine = metric_rows(java(real_kafka, *arguments)), metric_rows(ours(*arguments))
    assert len(mine) > 70
    by_topic = {name for name in set(mine) - set(theirs) if "topic=measured}" in name}
    assert set(mine) - set(theirs) == by_topic  # Java has them once an answer is used up
    assert {n: mine[n] for n in SAME_OF_A_CONSUMER} == {n: theirs[n] for n in SAME_OF_A_CONSUMER}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--hide-header", "--from-latest", "--timeout", "600"),
        ("--num-records", "9000000", "--timeout", "600", "--show-detailed-stats"),
        ("--date-format", "yy/M/d 'at' hh:mm:ss a EEE SSS"),
        ("--fetch-size", "2000", "--socket-buffer-size", "65536"),
        ("--command-config", "FILE"),
        ("--consumer.config", "FILE"),
        ("--version",),
    ],
    ids=" ".join,
)
def test_consumer_perf_test(
    arguments: tuple[str, ...], real_kafka: RealKafka, tmp_path: Path
) -> None:
    """Titles, sums and the warning of too few records are the same."""
    arguments = with_file(arguments, tmp_path)
    ours("verifiable-producer", *address(real_kafka), "--topic", "read", "--max-messages", "50")
    wanted = () if "--num-records" in arguments else ("--num-records", "50")
    same(
        real_kafka,
        "consumer-perf-test",
        *(*address(real_kafka), "--topic", "read", *wanted, *arguments),
    )


SHARED: list[tuple[str, ...]] = [
    ("--num-records", "50"),
    ("--messages", "50", "--hide-header", "--show-consumer-stats", "--threads", "2"),
    ("--num-records", "50", "--date-format", "yy/M/d", "--consumer.config", "FILE"),
    ("--num-records", "0", "--command-property", "client.id=x", "--show-consumer-stats"),
]
RACES = 20
"""Runs of Kafka's tool, of which one at least is not interrupted."""


def test_share_consumer_perf_test(real_kafka: RealKafka, tmp_path: Path) -> None:
    """Titles, sums and warnings are the same, of each member too."""
    name = "share-consumer-perf-test"
    ours("verifiable-producer", *address(real_kafka), "--topic", "shared", "--max-messages", "50")
    numbers = count()

    def new_group() -> str:
        group = f"perf-{next(numbers)}"
        with Admin(bootstrap_servers=real_kafka.bootstrap) as admin:
            begin_at_the_start(admin, group)
        return group

    for words in SHARED:
        flags = (*address(real_kafka), "--topic", "shared", *with_file(words, tmp_path), "--group")

        def run(flags: tuple[str, ...] = flags) -> tuple[Answer, Answer]:
            theirs = java(real_kafka, name, *flags, new_group())
            return theirs, ours(name, *flags, new_group())

        assert compared(run, _counted).status == 0


def test_a_share_consumer_perf_test_without_records(real_kafka: RealKafka) -> None:
    """Both end after the time limit, with a warning.

    Kafka's waits for its consumers 100 ms longer than that, and interrupts one that is late. With
    fewer records than were asked for it always does, as their limit begins with the last of them.
    """
    name, numbers = "share-consumer-perf-test", count()
    with Admin(bootstrap_servers=real_kafka.bootstrap) as admin:
        admin.create_topic("nothing-shared", partitions=1)
    limits = ("--num-records", "90", "--timeout", "600")
    flags = (*address(real_kafka), "--topic", "nothing-shared", *limits, "--group")

    def run() -> tuple[Answer, Answer]:
        for _ in range(RACES):
            theirs = java(real_kafka, name, *flags, f"empty-{next(numbers)}")
            if not any("InterruptException" in line for line in theirs.errors):
                break
        return theirs, ours(name, *flags, f"empty-{next(numbers)}")

    assert "WARNING: Exiting before" in "".join(compared(run, _counted).lines)


def _counted(lines: list[str]) -> list[str]:
    """Blank times and rates; whichever member reads the records, the sum is that of the group."""
    found = []
    for line in lines:
        cells = line.split(", ")
        records = cells[5] if len(cells) == 7 and not line.startswith("Share consumer") else ""
        found.append(" ".join([*blanked([line]), records]))
    return found


def test_end_to_end_latency(real_kafka: RealKafka, tmp_path: Path) -> None:
    """Both forms of call report alike, with keys and headers too."""
    old = (real_kafka.bootstrap, "ping", "3", "1", "10")
    for tool in (java(real_kafka, "end-to-end-latency", *old), ours("end-to-end-latency", *old)):
        assert tool.status == 0
        assert tool.lines[0].startswith("WARNING: Positional argument usage is deprecated")
    flags = ("--topic", "ping", "--num-records", "3", "--producer-acks", "all")
    sizes = ("--record-size", "9", "--record-key-size", "2", "--num-headers", "2")
    header: tuple[str, ...] = ("--record-header-key-size", "3", "--record-header-size", "4")
    header = (*header, *with_file(("--command-config", "FILE"), tmp_path))
    answer = same(real_kafka, "end-to-end-latency", *address(real_kafka), *flags, *sizes, *header)
    assert [line.split()[0] for line in answer.lines] == ["0", "Avg", "Percentiles:"]


def test_a_topic_is_made_for_latency(real_kafka: RealKafka) -> None:
    """A missing topic is created and reported with the same text."""
    name = "end-to-end-latency"
    flags = [*address(real_kafka), "--num-records", "1", "--producer-acks", "1"]
    flags += ["--record-size", "1", "--topic"]
    theirs = java(real_kafka, name, *flags, "ping-j")
    mine = ours(name, *flags, "ping-o")
    assert mine.lines[0] == theirs.lines[0].replace("ping-j", "ping-o")
    assert blanked(mine.lines[1:]) == blanked(theirs.lines[1:])


def events(answer: Answer) -> list[dict[str, object]]:
    """Read the events without what differs from run to run."""
    found = []
    for line in answer.lines:
        event = json.loads(line)
        assert list(event)[:2] == ["timestamp", "name"]
        for name in ("timestamp", "avg_throughput", "message", "topic", "partitions", "offsets"):
            event.pop(name, None)
        found.append(event)
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ("--max-messages", "5"),
        ("--max-messages", "5", "--repeating-keys", "2", "--value-prefix", "7", "--acks", "1"),
        ("--max-messages", "2", "--message-create-time", "1000"),
        ("--max-messages", "0"),
        ("--max-messages", "1", "--command-config", "FILE"),
    ],
    ids=" ".join,
)
def test_verifiable_producer(
    arguments: tuple[str, ...], real_kafka: RealKafka, tmp_path: Path
) -> None:
    """Events come in the same order with the same fields."""
    number = abs(hash(arguments)) % 10_000
    arguments = with_file(arguments, tmp_path)
    flags = (*address(real_kafka), *arguments, "--topic")
    theirs = java(real_kafka, "verifiable-producer", *flags, f"verify-j{number}")
    mine = ours("verifiable-producer", *flags, f"verify-o{number}")
    assert events(mine) == events(theirs)
    for one, other in zip(mine.lines, theirs.lines, strict=True):
        assert list(json.loads(one)) == list(json.loads(other))
    assert mine.status == theirs.status == 0


def test_verifiable_producer_reports_failures(real_kafka: RealKafka) -> None:
    """A record that cannot be sent is an event with Java's class; the status is 0 all the same."""
    flags = (*address(real_kafka), "--topic", "bad/topic", "--max-messages", "1")
    theirs = java(real_kafka, "verifiable-producer", *flags)
    mine = ours("verifiable-producer", *flags)
    assert events(mine) == events(theirs)
    assert mine.status == theirs.status


VERIFYING: list[tuple[str, ...]] = [
    (),
    ("--verbose",),
    ("--enable-autocommit",),
    ("--group-instance-id", "i1", "--session-timeout", "20000", "--group-protocol", "classic"),
    ("--assignment-strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor"),
    ("--reset-policy", "earliest", "--command-config", "FILE"),
]


@pytest.fixture(scope="module")
def nine_records(real_kafka: RealKafka) -> str:
    """Return a topic that has them, whichever test reads it first."""
    words = ("--topic", "verify-read", "--max-messages", "9")
    assert ours("verifiable-producer", *address(real_kafka), *words).status == 0
    return "verify-read"


def test_verifiable_consumer(real_kafka: RealKafka, nine_records: str, tmp_path: Path) -> None:
    """Rebalances, records and commits are reported alike."""
    flags = (*address(real_kafka), "--topic", nine_records, "--max-messages", "7", "--group-id")
    for number, words in enumerate(VERIFYING):
        name, more = str(number), with_file(words, tmp_path)
        theirs = java(real_kafka, "verifiable-consumer", *flags, f"vj{name}", *more)
        mine = ours("verifiable-consumer", *flags, f"vo{name}", *more)
        assert [_detail(line) for line in mine.lines] == [_detail(line) for line in theirs.lines]
        assert mine.status == theirs.status == 0


def _detail(line: str) -> dict[str, object]:
    event: dict[str, object] = json.loads(line)
    event["timestamp"] = 0
    return event


@pytest.mark.parametrize("tool", ["verifiable-producer", "verifiable-consumer"])
def test_the_old_name_of_the_file_of_settings(
    tool: str, real_kafka: RealKafka, nine_records: str, tmp_path: Path
) -> None:
    """It is taken, and said to be old in Kafka's words."""
    old = f"--{tool.removeprefix('verifiable-')}.config"
    reads = tool.endswith("consumer")
    group = ("--group-id", "old-name") if reads else ()
    words = ("--topic", nine_records if reads else "old", "--max-messages", "1", old, "FILE")
    flags = (*address(real_kafka), *group, *with_file(words, tmp_path))
    theirs, mine = java(real_kafka, tool, *flags), ours(tool, *flags)
    assert mine.lines[0] == theirs.lines[0]
    assert "deprecated" in mine.lines[0]
    assert mine.status == theirs.status == 0


@pytest.mark.parametrize("tool", ["verifiable-producer", "verifiable-consumer"])
def test_a_signal_ends_in_order(tool: str, real_kafka: RealKafka) -> None:
    """SIGTERM lets the last events be written; the status is that of the signal, as in Java."""
    flags = [*address(real_kafka), "--topic", f"verify-{tool}"]
    flags += ["--throughput", "20"] if tool.endswith("producer") else ["--group-id", "signal"]
    last, statuses = [], []
    main = real_kafka.kafka.command(f"org.apache.kafka.tools.{TOOLS[tool]}", *flags)
    for command in (main, [sys.executable, "-m", "ottla.cli.main", tool, *flags]):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
            assert run.stdout is not None
            assert b"startup_complete" in run.stdout.readline()
            run.stdout.readline()
            run.send_signal(signal.SIGTERM)
            rest = run.stdout.read().decode().splitlines()
        names = [json.loads(line)["name"] for line in rest]
        last.append([name for name in names if name != "producer_send_success"])
        statuses.append(run.returncode)
    assert last[0][-2:] == last[1][-2:]
    assert statuses == [143, 143]


def test_replica_verification(real_kafka: RealKafka) -> None:
    """The tool runs until it is ended, reporting at each interval in Kafka's words."""
    flags = ("--broker-list", real_kafka.bootstrap, "--time", "-2", "--report-interval-ms", "300")
    more = (
        "--max-wait-ms",
        "200",
        "--fetch-size",
        "1000",
        "--topics-include",
        "__consumer_offsets",
    )
    name = "replica-verification"
    shown = []
    main = real_kafka.kafka.command(f"org.apache.kafka.tools.{TOOLS[name]}", *flags, *more)
    for command in (main, [sys.executable, "-m", "ottla.cli.main", name, *flags, *more]):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
            assert run.stdout is not None
            lines = [run.stdout.readline().decode().strip() for _ in range(2)]
            run.kill()
        shown.append(blanked(lines))
    assert shown[0] == shown[1]
    same(real_kafka, name, *flags[:2], "--topics-include", "no-such-topic")
    same(real_kafka, name, "--version")


ON_OTTLA = [
    ("producer-perf-test", "--topic ours --num-records 2000 --record-size 90 --throughput -1"),
    ("verifiable-producer", "--topic ours --max-messages 5"),
    ("consumer-perf-test", "--topic ours --num-records 2000 --group perf"),
    ("verifiable-consumer", "--topic ours --max-messages 50 --group-id verify"),
    ("end-to-end-latency", "--topic ping --num-records 3 --producer-acks all --record-size 9"),
]


def test_kafkas_tools_on_our_node(kafka: Kafka, real_kafka: RealKafka, tmp_path: Path) -> None:
    """Kafka's tools measure and verify our node with the words they have for Kafka's."""
    with running_node(tmp_path) as node:
        for tool, arguments in ON_OTTLA:
            words = arguments.replace("ours", "theirs").replace("ping", "ping2").split()
            theirs = java(real_kafka, tool, *address(real_kafka), *words)
            main = kafka.command(f"org.apache.kafka.tools.{TOOLS[tool]}", *arguments.split())
            mine = _run([*main, "--bootstrap-server", node.bootstrap])
            assert (mine.status, theirs.status) == (0, 0), mine
            kept = [line.replace("theirs", "ours").replace("ping2", "ping") for line in theirs[0]]
            assert blanked(_events_once(mine.lines)) == blanked(_events_once(kept))
        flags = ("--broker-list", node.bootstrap, "--time", "-2", "--report-interval-ms", "200")
        name = "org.apache.kafka.tools.ReplicaVerificationTool"
        run = subprocess.Popen(kafka.command(name, *flags), stdout=subprocess.PIPE)
        with run:
            assert run.stdout is not None
            lines = [run.stdout.readline().decode() for _ in range(2)]
            run.kill()
        assert "max lag is 0 for partition" in lines[1]


def _events_once(lines: list[str]) -> list[str]:
    """Leave out how often a consumer polled: that is a matter of time."""
    return list(dict.fromkeys(blanked(lines)))


WRONG = [
    ("producer-perf-test", "--topic x"),
    ("producer-perf-test", "--topic x --num-records a --throughput 1 --record-size 3"),
    ("producer-perf-test", "--topic x --num-records 5 --throughput 1"),
    ("producer-perf-test", "--topic x --num-records 5 --throughput b --record-size 3"),
    ("producer-perf-test", "--topic x --num-records 5 --throughput 1 --record-size b"),
    ("producer-perf-test", "--topic x --num-records 5 --throughput 1 --record-size 3"),
    ("producer-perf-test", "--topic x --num-records 0 --throughput 1 --record-size 3"),
    ("producer-perf-test", "--topic x --num-records 5 --throughput 1 --record-size 0"),
    (
        "producer-perf-test",
        "--topic x --num-records 5 --throughput 1 --record-size 3 --payload-monotonic",
    ),
    (
        "producer-perf-test",
        "--topic x --num-records 5 --throughput 1 --record-size 3 --warmup-records 5",
    ),
    (
        "producer-perf-test",
        (
            "--topic x --num-records 5 --throughput 1 --record-size 3 --bootstrap-server x:1 "
            "--reporting-interval 0"
        ),
    ),
    (
        "producer-perf-test",
        (
            "--topic x --num-records 5 --throughput 1 --record-size 3 --command-property a=b "
            "--producer-props c=d"
        ),
    ),
    ("consumer-perf-test", "--topic x --num-records 1"),
    ("consumer-perf-test", "--bootstrap-server x:1 --num-records 1"),
    ("consumer-perf-test", "--bootstrap-server x:1 --topic y"),
    ("consumer-perf-test", "--bootstrap-server x:1 --topic y --include z --num-records 1"),
    ("consumer-perf-test", "--bootstrap-server x:1 --topic y --messages 1 --num-records 1"),
    ("share-consumer-perf-test", "--topic x --num-records 1"),
    ("share-consumer-perf-test", "--bootstrap-server x:1 --num-records 1"),
    ("share-consumer-perf-test", "--bootstrap-server x:1 --topic y"),
    ("share-consumer-perf-test", "--bootstrap-server x:1 --topic y --messages 1 --num-records 1"),
    ("end-to-end-latency", "a b c"),
    ("end-to-end-latency", "--bootstrap-server x:1 --topic y"),
    (
        "end-to-end-latency",
        "--bootstrap-server x:1 --topic y --num-records 1 --producer-acks 2 --record-size 1",
    ),
    (
        "end-to-end-latency",
        "--bootstrap-server x:1 --topic y --num-records 0 --producer-acks 1 --record-size 1",
    ),
    (
        "end-to-end-latency",
        "--bootstrap-server x:1 --topic y --num-records 1 --producer-acks 1 --record-size -1",
    ),
    ("verifiable-producer", "--topic x"),
    ("verifiable-producer", "--bootstrap-server x:1"),
    ("verifiable-producer", "--topic x --bootstrap-server x:1 --acks 5"),
    ("verifiable-consumer", "--topic x --bootstrap-server x:1"),
    ("verifiable-consumer", "--topic x --group-id g"),
    ("replica-verification", "--time -1"),
    ("replica-verification", "--broker-list nonsense"),
]


@pytest.mark.parametrize(("tool", "arguments"), WRONG, ids=lambda value: value)
def test_wrong_calls(tool: str, arguments: str, real_kafka: RealKafka) -> None:
    """A wrong call ends with status 1 and the same sentence; ours may add a hint."""
    theirs = java(real_kafka, tool, *arguments.split())
    mine = ours(tool, *arguments.split())
    assert (mine.status, theirs.status) == (1, 1)
    said = " ".join(mine.errors).partition("Error: ")[2].removesuffix(SERVER_HINT)
    assert said, mine.errors
    assert _squeezed(said) in _squeezed(" ".join([*theirs.lines, *theirs.errors]))


def _squeezed(text: str) -> str:
    """Take all blanks out: argparse4j breaks and stretches its lines."""
    return re.sub(r"\s+", "", text)
