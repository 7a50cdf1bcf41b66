"""Kafka's tools on an Ottla node: the same calls print the same on both nodes.

Each step is one call of a Java tool; ids, times and addresses are blanked.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.conformance.clients.node_process import read_when_ready
from tests.conformance.tools.test_tools import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka, RealKafka

pytestmark = pytest.mark.conformance


class Step(NamedTuple):
    """One call of a tool."""

    tool: str
    arguments: str
    stdin: str = ""


STORY = (
    Step("topics", "--create --topic story --partitions 2 --config retention.ms=9000000"),
    Step("topics", "--create --topic story"),
    Step("topics", "--describe --topic story"),
    Step("topics", "--alter --topic story --partitions 1"),
    Step("topics", "--alter --topic story --partitions 3"),
    Step("topics", "--create --topic sto.ry"),
    Step("topics", "--create --topic sto_ry"),
    Step("topics", "--create --topic wide --replication-factor 2"),
    Step("topics", "--create --topic bad --config retention.ms=-2"),
    Step("topics", "--create --topic bad --config cleanup.policy=shred"),
    Step("topics", "--create --topic one --partitions 1"),
    Step("topics", "--list --exclude-internal"),
    Step(
        "console-producer",
        "--topic one --reader-property parse.key=true --reader-property key.separator=:",
        "k1:v1\nk2:v2\nk3:v3\n",
    ),
    Step("console-producer", "--topic one --compression-codec lz4", "plain\n" * 50),
    Step(
        "console-consumer",
        "--topic one --partition 0 --offset earliest --max-messages 4 "
        "--formatter-property print.key=true --formatter-property print.offset=true",
    ),
    Step("console-consumer", "--topic one --group readers --from-beginning --max-messages 3"),
    Step("consumer-groups", "--list"),
    Step("consumer-groups", "--list --state --type"),
    Step("consumer-groups", "--describe --group readers"),
    Step("consumer-groups", "--describe --group readers --state"),
    Step("consumer-groups", "--describe --group absent"),
    Step("consumer-groups", "--reset-offsets --group readers --topic one --to-latest --execute"),
    Step("consumer-groups", "--describe --group readers"),
    Step("consumer-groups", "--reset-offsets --group readers --topic one --shift-by -5 --execute"),
    Step("console-consumer", "--topic one --group readers --max-messages 5"),
    Step("consumer-groups", "--delete-offsets --group readers --topic one"),
    Step("consumer-groups", "--delete --group readers"),
    Step("consumer-groups", "--delete --group readers"),
    Step("topics", "--delete --topic story"),
    Step("topics", "--describe --topic story"),
)

_JAVA_ONLY = re.compile(r"\s+at |SLF4J|Caused by|java\.|org\.apache|The consumer rebalance")
_BLANKED = (
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: *"),
    (re.compile(r"[\w.]+:\d{4,5} +\(1\)"), "*"),
    # A typo is answered with the nearest name; Kafka only says that it is unknown.
    (re.compile(r"; did you mean [\w.]+\?"), ""),
)


@pytest.fixture(scope="module")
def ottla_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run our node in a process of its own."""
    directory: Path = tmp_path_factory.mktemp("ottla")
    ready = directory / "ready.json"
    command = [sys.executable, "-m", "ottla.cli.main", "server-start", "--port", "0"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready)], cwd=directory, stdout=log, stderr=log
        )
    try:
        yield read_when_ready(ready, process)["bootstrap"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def output_of(kafka: Kafka, bootstrap: str, step: Step) -> list[str]:
    """Run one step and return what it printed, stack traces left out, in a fixed order."""
    done = kafka.run(
        CLASSES[step.tool],
        "--bootstrap-server",
        bootstrap,
        *step.arguments.split(),
        stdin=step.stdin,
        check=False,
    )
    text = done.stdout + done.stderr
    for pattern, blank in _BLANKED:
        text = pattern.sub(blank, text)
    lines = [line.rstrip() for line in text.splitlines()]
    return sorted(
        line
        for line in lines
        if line
        and not re.match(r"\s+at |SLF4J|Caused by|java\.|org\.apache|The consumer reb", line)
    )


@pytest.mark.timeout(1200)
def test_the_same_story_on_both_nodes(
    kafka: Kafka, untouched_kafka: RealKafka, ottla_bootstrap: str
) -> None:
    """Thirty calls of Kafka's tools print the same on Kafka and on Ottla."""
    differences = []
    for step in STORY:
        theirs = output_of(kafka, untouched_kafka.bootstrap, step)
        ours = output_of(kafka, ottla_bootstrap, step)
        if theirs != ours:
            differences.append((step.tool, step.arguments, theirs, ours))
    assert not differences, "\n".join(map(str, differences))
