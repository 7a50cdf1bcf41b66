"""The JSON files of reassignments: parsed with Kafka's error texts, and written.

Kafka: org.apache.kafka.tools.reassign.ReassignPartitionsCommand, parsePartitionReassignmentData.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cli.options.joptsimple import java_integer
from ottla.cli.options.json_files import (
    json_array,
    json_field,
    json_number,
    json_object,
    json_string,
)
from ottla.cli.output.failures import ToolError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    Plan = list[tuple[TopicPartition, tuple[int, ...]]]

T = TypeVar("T")
EARLIEST_VERSION = 1
ANY_DIRECTORY = "any"


def read_text(path: str) -> str:
    """Read a file; raises ToolError with Kafka's text."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"Unable to read file {path}") from error


def parse_plan(text: str) -> Plan:
    """Return the partitions of a plan with their replicas, in the file's order."""
    plan: Plan = []
    for entry in json_array(_document(text).get("partitions", [])):
        partition = TopicPartition(json_string(entry, "topic"), json_number(entry, "partition", 32))
        replicas = [
            json_number({"replica": one}, "replica", 32)
            for one in json_array(json_field(entry, "replicas"))
        ]
        _check_directories(partition, replicas, entry.get("log_dirs"))
        plan.append((partition, tuple(replicas)))
    return plan


def _document(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolError("The input string is not a valid JSON") from error
    document = json_object(parsed)
    version = EARLIEST_VERSION
    if "version" in document:
        version = json_number(document, "version", 32)
    if version != EARLIEST_VERSION:
        raise ToolError(f"Not supported version field value {version}")
    return document


def _check_directories(partition: TopicPartition, replicas: list[int], given: Any) -> None:
    if given is None:
        return
    directories = json_array(given)
    if len(directories) != len(replicas):
        raise ToolError(
            f"Size of replicas list {replicas} is different from size of log dirs list "
            f"[{', '.join(map(str, directories))}] for partition {partition}"
        )


def parse_directories(text: str) -> dict[tuple[TopicPartition, int], str]:
    """Return the log directory of each replica of a plan that has one."""
    found = {}
    for entry in json_array(_document(text).get("partitions", [])):
        partition = TopicPartition(entry["topic"], entry["partition"])
        for broker, directory in zip(entry["replicas"], entry.get("log_dirs") or (), strict=False):
            if directory != ANY_DIRECTORY:
                found[partition, broker] = str(directory)
    return found


def parse_executable(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Parse a plan for --execute: each partition once, with distinct replicas."""
    plan = parse_plan(text)
    if not plan:
        raise ToolError("Partition reassignment list cannot be empty")
    if not all(replicas for _, replicas in plan):
        raise ToolError("Partition replica list cannot be empty")
    twice = _repeated(partition for partition, _ in plan)
    if twice:
        names = ",".join(map(str, twice))
        raise ToolError(f"Partition reassignment contains duplicate topic partitions: {names}")
    wrong = [(partition, _repeated(replicas)) for partition, replicas in plan]
    texts = [
        f"{partition} contains multiple entries for {joined(found)}"
        for partition, found in wrong
        if found
    ]
    if texts:
        raise ToolError(
            f"Partition replica lists may not contain duplicate entries: {'. '.join(texts)}"
        )
    return dict(plan)


def parse_topics(text: str) -> list[str]:
    """Return the topics of --topics-to-move-json-file."""
    entries = json_array(_document(text).get("topics", []))
    topics = [json_string(entry, "topic") for entry in entries]
    twice = _repeated(topics)
    if twice:
        raise ToolError(
            f"List of topics to reassign contains duplicate entries: [{', '.join(twice)}]"
        )
    return topics


def parse_brokers(text: str) -> list[int]:
    """Return the broker ids of --broker-list."""
    brokers = []
    for part in text.split(","):
        try:
            brokers.append(java_integer(part, 32))
        except ValueError as error:
            raise ToolError(str(error)) from error
    twice = _repeated(brokers)
    if twice:
        raise ToolError(f"Broker list contains duplicate entries: [{', '.join(map(str, twice))}]")
    return brokers


def plan_text(
    assignment: Mapping[TopicPartition, Sequence[int]],
    places: Mapping[tuple[TopicPartition, int], str],
) -> str:
    """Return the plan as Kafka's tool prints it: one line of JSON, by topic and partition."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": [places.get((partition, replica), ANY_DIRECTORY) for replica in replicas],
        }
        for partition, replicas in sorted(assignment.items())
    ]
    document = {"version": EARLIEST_VERSION, "partitions": partitions}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def joined(values: Iterable[object]) -> str:
    """Join with commas, as Kafka's tool prints replicas and partitions."""
    return ",".join(map(str, values))


def plural(values: Collection[object]) -> str:
    """Return the ending of a noun that counts these values."""
    return "" if len(values) == 1 else "s"


def _repeated(values: Iterable[T]) -> list[T]:
    return [value for value, count in Counter(values).items() if count > 1]
