"""The same call of a Java tool and of ours: run, made comparable, compared.

Kafka: bin/kafka-*.sh. Kafka's tools all run in one JVM (`java/ToolRunner.java`), ours in the
test's process: neither start is waited for.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.kafka import Kafka

CLASSES = {
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
}

# Stack traces, and what says the same again before them.
_TRACE = re.compile(r"^(\s+at [\w.$/<>]+\(|\s*\.\.\. \d+ more|Caused by: |\tSuppressed: |SLF4J)")
_WRAPPED = re.compile(
    r"^(java\.util\.concurrent\.ExecutionException|java\.lang\.RuntimeException): "
)
_EXCEPTION = re.compile(r"^[\w.$]+(Exception|Error): ")


class Said(NamedTuple):
    """What a tool said: both channels as lines, and its exit status."""

    out: list[str]
    err: list[str]
    status: int


class ToolJvm:
    """One JVM for many calls; a tool that ends its JVM costs a new one."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        source = Path(__file__).parent / "java" / "ToolRunner.java"
        self._classes = kafka.compile(source)
        self._process: subprocess.Popen[str] | None = None

    def run(self, tool: str, arguments: Sequence[str], stdin: str = "") -> Said:
        """Run a tool to its end."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        call = {"class": CLASSES[tool], "arguments": list(arguments), "stdin": stdin}
        process.stdin.write(json.dumps(call) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        status = answer["status"]
        if status is None:
            status = process.wait(10)
            self._process = None
        assert status >= 0, f"{tool} {arguments} did not end in time"
        return said(answer["out"], answer["err"], status)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._kafka.command("ToolRunner", classes=self._classes),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._process

    def close(self) -> None:
        """End the JVM."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(10)
            self._process = None


def our_tool(tool: str, arguments: Sequence[str], stdin: str = "") -> Said:
    """Run one of our tools in this process."""
    out, err, before, status = io.StringIO(), io.StringIO(), sys.stdin, 0
    sys.stdin = io.StringIO(stdin)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main([tool, *arguments])
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.stdin = before
    return said(out.getvalue(), err.getvalue(), status)


def said(out: str, err: str, status: int) -> Said:
    """Make what a tool printed comparable: no stack traces, no usage, no blank lines."""
    return Said(_lines(out), _lines(err), status)


def _lines(text: str) -> list[str]:
    text = re.sub(r"^Option [^\n]*Description +$.*", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^Usage: ottla.*?^Error: ", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^usage: .*?^(?=kafka-[\w-]+:\s)", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(
        r"^Command line error: (.*)\. Type --help for help\.$", r"\1", text, flags=re.MULTILINE
    )
    parser = re.search(r"^kafka-[\w-]+:\s+error:\s+(.*)", text, re.MULTILINE | re.DOTALL)
    if parser is not None:  # argparse4j breaks and stretches lines
        return [re.sub(r"\s+", " ", parser[1]).replace("-- ", "--").strip()]
    kept: list[str] = []
    for line in text.splitlines():
        if _TRACE.match(line) or not line.strip():
            continue
        plain = line
        while _WRAPPED.match(plain):
            plain = _WRAPPED.sub("", plain)
        said_before = bool(kept) and _EXCEPTION.match(plain) is not None
        if said_before and (kept[-1] == plain or kept[-1].endswith(_EXCEPTION.sub("", plain))):
            continue
        kept.append(plain.rstrip())
    return kept


def split(call: str) -> tuple[str, list[str]]:
    """Split a call as a shell would: the tool and its arguments."""
    tool, *arguments = shlex.split(call)
    return tool, arguments
