"""Runs the same call with Kafka's tool and Ottla's and compares the normalised output.

Kafka: bin/kafka-*.sh. Kafka's tools run in one JVM (`java/ToolRunner.java`), Ottla's in the test's
process, which avoids start-up times.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.main import main
from tests.conformance.differential.normalise import number
from tests.conformance.pair import wait_until_all_applied
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conformance.kafka import Kafka

CLASSES = {
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "storage": "kafka.tools.StorageTool",
    "share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}

CALL_LIMIT_S = 200
LOCAL_TOOLS = ("storage",)
"""Tools that connect to no broker."""

# Stack traces, and lines that repeat a message before them.
_TRACE = re.compile(
    r"^(\s+at [\w.$/<>]+\(|\s*\.\.\. \d+ more|Caused by: |\tSuppressed: |SLF4J)"
    r"|^The consumer rebalance protocol \(KIP-848\)"  # a hint of Java's client
    r"|^New offset \("  # Kafka's tool logs this, and the jars have no logger
    r"|^ at \[Source: |^com\.fasterxml\."  # how it tried to read a file
)
_WRAPPED = re.compile(
    r"^(java\.util\.concurrent\.ExecutionException|java\.lang\.RuntimeException): "
)
_PROGRAM = r"(?:kafka|verifiable)-[\w.-]+"
"""The name of a tool that parses its flags with argparse4j."""
_EXCEPTION = re.compile(r"^[\w.$]+(Exception|Error): ")


class Said(NamedTuple):
    """The output of a tool: both streams as lines, and its exit status."""

    out: list[str]
    err: list[str]
    status: int


class ToolJvm:
    """One JVM for many calls; it is restarted after a tool that exits it."""

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
        call = {
            "class": CLASSES[tool],
            "arguments": list(arguments),
            "stdin": stdin,
            "timeout_s": CALL_LIMIT_S,
        }
        process.stdin.write(json.dumps(call) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        status = answer["status"]
        if status is None:
            status = self._forget(process)
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
            self._forget(self._process)

    def _forget(self, process: subprocess.Popen[str]) -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        self._process = None
        return process.wait(WAIT_S)


def our_tool(tool: str, arguments: Sequence[str], stdin: str = "") -> Said:
    """Run one of our tools in this process."""
    out, err, before, status = _stream(), _stream(), sys.stdin, 0
    sys.stdin = _stream(stdin)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main([tool, *arguments])
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.stdin = before
    return said(_text(out), _text(err), status)


def _stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8", newline="")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


def said(out: str, err: str, status: int) -> Said:
    """Normalise the output of a tool: no stack traces, no usage, no blank lines."""
    shown = _lines(out)
    # Java's tools print the message on one stream and the trace on the other.
    errors = [
        line
        for line in _lines(err)
        if not (_EXCEPTION.match(line) and any(_EXCEPTION.sub("", line) in one for one in shown))
    ]
    return Said(shown, errors, status)


def _lines(text: str) -> list[str]:
    text = re.sub(r"^Option [^\n]*Description +$.*", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^Usage: ottla.*?^Error: ", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(rf"^usage: .*?^(?={_PROGRAM}:\s)", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(
        r"^Command line error: (.*)\. Type --help for help\.$", r"\1", text, flags=re.MULTILINE
    )
    parser = re.search(rf"^{_PROGRAM}:\s+error:\s+(.*)", text, re.MULTILINE | re.DOTALL)
    if parser is not None:  # argparse4j wraps and pads lines
        return [re.sub(r"\s+", " ", parser[1]).replace("-- ", "--").strip()]
    kept: list[str] = []
    for line in text.splitlines():
        if _TRACE.match(line) or not line.strip():
            continue
        plain = re.sub(r'^Exception in thread "main" (joptsimple\.\w+: )?', "", line)
        while _WRAPPED.match(plain):
            plain = _WRAPPED.sub("", plain)
        is_trace = plain != line or _EXCEPTION.match(plain) is not None
        if is_trace and kept and kept[-1].endswith((plain, _EXCEPTION.sub("", plain))):
            continue  # the trace repeats the message
        kept.append(plain.rstrip())
    return kept


def split(call: str) -> tuple[str, list[str]]:
    """Split a call as a shell would: the tool and its arguments."""
    tool, *arguments = shlex.split(call)
    return tool, arguments


class Place(NamedTuple):
    """A broker: Kafka or Ottla."""

    name: str
    bootstrap: str
    controllers: str


class Call(NamedTuple):
    """One call of a tool in a story.

    In it `{x}` makes names that belong to one telling of the story, `{b}` and `{c}` are the
    addresses of brokers and controllers, `{f}` is a directory of files. Unless it names an address
    itself, --bootstrap-server is added. `only` says why Kafka's node and ours answer this call
    differently, when they do; the two tools must agree all the same.
    """

    text: str
    only: str = ""
    stdin: str = ""


def read_story(path: Path) -> list[Call]:
    """Read a story: one call per line, `input >> call  ## why the nodes differ`, # comments."""
    calls = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        typed, found, call = line.rpartition(" >> ")
        text, _, only = call.partition("  ## ")
        stdin = typed.replace("\\n", "\n") if found else ""
        calls.append(Call(text.strip(), only, stdin))
    return calls


TELLERS = {"java": "jjjj", "ours": "oooo"}
_CHANGE = re.compile(r"--(alter|create|delete)")
_CHANGING = (
    (re.compile(r"\bEpoch: \d+$"), "Epoch: N"),
    (re.compile(r"^(HighWatermark: +)\d+"), r"\1N"),
    (re.compile(r"^(\d +\t[\w-]{22}\t)\d+ *"), r"\1N"),
    (re.compile(r"\b[\w-]{22}\b(?<!-)"), "ID"),
    (re.compile(r"\b\d+ms ago|\b\d+ ms ago *"), "N ms ago"),
    (re.compile(r"\b1[789]\d{11}\b"), "TIME"),
    (re.compile(r"^(tid-\w+ *\t\d+ *\t|\d+ *\ttid-\w+ *\t)\d+ *"), r"\1N"),  # producer ids
    (re.compile(r"^\d+ *(\t\d+ *\t-1 *\t)"), r"N\1"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
)
_OFFSETS = re.compile(r'(?<="offsets": \[)[\d, ]+(?=\])')  # Java prints sets, in no order
_NAMES = re.compile(r"((?:Valid [a-z]+ are|options|scenarios): )(\[*[\w-]+\]?, .*)")
_OF_A_CLUSTER = (
    (re.compile(r"\b(Leader|Replicas|Isr): [\d,]+"), r"\1: N"),  # placed at random
    (re.compile(r"^(MaxFollowerLag\w*: +)\d+"), r"\1N"),
    (re.compile(r"^(\d +\tID\tN\t)\d+ *"), r"\1N"),
)
_JSON = re.compile(r'^\{"brokers":')


def run_story(
    story: Sequence[Call], place: Place, directory: Path, *, run: Callable[..., Said], mark: str
) -> list[Said]:
    """Run a story with one set of tools; names are blanked."""
    answers = []
    has_changed = False
    for call in story:
        if has_changed and not _CHANGE.search(call.text):
            wait_until_all_applied(place.bootstrap)
        has_changed = _CHANGE.search(call.text) is not None
        words = {"x": mark, "b": place.bootstrap, "c": place.controllers, "f": str(directory)}
        text = call.text
        for letter, word in words.items():
            text = text.replace("{" + letter + "}", word)
        tool, arguments = split(text)
        if tool not in LOCAL_TOOLS and "{b}" not in call.text and "{c}" not in call.text:
            arguments = ["--bootstrap-server", place.bootstrap, *arguments]
        answers.append(_blanked(run(tool, arguments, call.stdin), words))
    return answers


def _blanked(answer: Said, words: dict[str, str]) -> Said:
    def lines(given: list[str]) -> list[str]:
        return sorted(_blank(line, words) for line in given)

    return Said(lines(answer.out), lines(answer.err), answer.status)


def _blank(line: str, words: dict[str, str]) -> str:
    if _JSON.match(line):
        line = json.dumps(json.loads(line, object_hook=_sorted_partitions))
    if line.startswith('{"timestamp":') and '"record_data"' not in line:
        line = json.dumps(json.loads(line), sort_keys=True)  # Java's order varies from JVM to JVM
    for pattern, blank in _CHANGING:
        line = pattern.sub(blank, line)
    line = _NAMES.sub(_sorted_names, line)
    line = _OFFSETS.sub(lambda found: ", ".join(sorted(found[0].split(", "))), line)
    line = line.replace(words["x"], "*" * len(words["x"])).replace(words["f"], "DIRECTORY")
    for address in f"{words['b']},{words['c']}".split(","):
        line = number(address.rpartition(":")[2]).sub("PORT", line)
    for pattern, blank in _OF_A_CLUSTER if "," in words["b"] else ():
        line = pattern.sub(blank, line)
    return line


def _sorted_names(found: re.Match[str]) -> str:
    """Put names in order: Java prints sets, and sets of enums differ from run to run."""
    names = found[2].replace("[", "").replace("]", "").split(", ")
    return found[1] + ", ".join(sorted(names))


def _sorted_partitions(found: dict[str, Any]) -> dict[str, Any]:
    """Put the partitions of a log directory in order: Java prints those of a hash table."""
    if "partitions" in found:
        found["partitions"].sort(key=lambda one: str(one["partition"]))
    return found


def differences(
    story: Sequence[Call], places: Sequence[Place], directory: Path, jvm: ToolJvm
) -> list[str]:
    """Run a story on each node with both sets of tools; return the differences.

    Both tools must say the same of a node, and Kafka's tool the same of both nodes.
    """
    found = []
    by_java: dict[str, list[Said]] = {}
    for place in places:
        java = run_story(story, place, directory, run=jvm.run, mark=TELLERS["java"])
        ours = run_story(story, place, directory, run=our_tool, mark=TELLERS["ours"])
        by_java[place.name] = java
        found += [
            _difference(f"java/ours on {place.name}", call, *pair)
            for call, *pair in zip(story, java, ours, strict=True)
            if pair[0] != pair[1]
        ]
    first, *others = places
    found += [
        _difference(f"{first.name}/{other.name} by java", call, *pair)
        for other in others
        for call, *pair in zip(story, by_java[first.name], by_java[other.name], strict=True)
        if pair[0] != pair[1] and not call.only
    ]
    return found


def _difference(what: str, call: Call, first: Said, second: Said) -> str:
    shown = [f"{what}: {call.text}"]
    for name, one, other in zip(Said._fields, first, second, strict=True):
        if one != other:
            shown += [f"    {name} {one}", f"    {name} {other}"]
    return "\n".join(shown)
