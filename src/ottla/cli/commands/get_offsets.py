"""`ottla get-offsets`: print offsets of partitions, by time.

Kafka: bin/kafka-get-offsets.sh, org.apache.kafka.tools.GetOffsetShell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import json_option, print_json, require, server_options, wants_json
from ottla.cli.options.joptsimple import ToolCommand, java_integer
from ottla.cli.output.failures import ToolError, fail, java_text
from ottla.errors import KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.blocking import Admin

SPECIAL_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")

EXAMPLES = """
\b
Examples:
  ottla get-offsets --bootstrap-server localhost:9092 --topic orders
  ottla get-offsets --bootstrap-server localhost:9092 --topic 'orders|payments' --time earliest
  ottla get-offsets --bootstrap-server localhost:9092 --topic-partitions orders:0,payments:2-
"""


class PartitionFilter(NamedTuple):
    """A filter of partitions: topic pattern, lower bound (inclusive), upper bound (exclusive)."""

    topic: str | None
    lower: int | None
    upper: int | None

    def takes(self, partition: TopicPartition) -> bool:
        """Whether a partition matches."""
        if self.topic and not re.fullmatch(self.topic, partition.topic):
            return False
        above = self.lower is None or partition.partition >= self.lower
        return above and (self.upper is None or partition.partition < self.upper)


@click.command("get-offsets", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@json_option
@click.option("--topic", metavar="REGEX", help="Only these topics.")
@click.option("--partitions", metavar="IDS", help="Only these partitions.")
@click.option("--topic-partitions", metavar="T:0,T:0-3,T", help="Partitions by topic.")
@click.option(
    "--time", default="latest", metavar="TIME", help=f"Milliseconds, or {'|'.join(SPECIAL_TIMES)}."
)
@click.option("--exclude-internal-topics", is_flag=True, help="Omit internal topics.")
def get_offsets(**options: Any) -> None:
    """Print the offset of each partition at a time: topic:partition:offset."""
    require(options["bootstrap_server"], "bootstrap-server")
    try:
        timestamp = _timestamp(options["time"])
        is_selected = _filter(options)
        with open_admin(options["bootstrap_server"], options["command_config"]) as admin:
            _run(admin, is_selected, timestamp, internal=not options["exclude_internal_topics"])
    except (ToolError, KafkaError) as error:
        fail(f"Error occurred: {error}")


def _timestamp(text: str) -> int:
    if text in SPECIAL_TIMES:
        return SPECIAL_TIMES[text]
    try:
        return java_integer(text, 64)
    except ValueError as error:
        known = " / ".join(f"{value} or {name}" for name, value in SPECIAL_TIMES.items())
        raise ToolError(
            f"Malformed time argument {text}. Please use {known}, or a specified long format "
            "timestamp"
        ) from error


def _filter(options: dict[str, Any]) -> Callable[[TopicPartition], bool]:
    topic, partitions = options["topic"], options["partitions"]
    if options["topic_partitions"] is not None:
        if topic is not None or partitions is not None:
            raise ToolError("--topic-partitions cannot be used with --topic or --partitions")
        rules = [parse_rule(text) for text in options["topic_partitions"].split(",")]
        return lambda partition: any(rule.takes(partition) for rule in rules)
    ids: set[int] | None = None
    if partitions is not None:
        try:
            ids = {java_integer(number, 32) for number in partitions.split(",")}
        except ValueError as error:
            raise ToolError(
                "--partitions expects a comma separated list of numeric partition ids, but "
                f"received: {partitions}"
            ) from error
    pattern = _pattern(topic) if topic is not None else None
    whole = PartitionFilter(pattern, None, None)
    return lambda partition: whole.takes(partition) and (ids is None or partition.partition in ids)


def parse_rule(text: str) -> PartitionFilter:
    """Parse topic, topic:1, topic:1-3, topic:1- or topic:-3; raises ToolError."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise ToolError(
            f"org.apache.kafka.tools.TerseException: Invalid rule specification: {text}"
        )
    topic, single, lower, upper = match.groups()
    pattern = _pattern(topic) if topic else None
    try:
        if single:
            number = java_integer(single, 32)
            return PartitionFilter(pattern, number, number + 1)
        bounds = [java_integer(bound, 32) if bound else None for bound in (lower, upper)]
    except ValueError as error:
        raise ToolError(str(error)) from error
    return PartitionFilter(pattern, *bounds)


def _pattern(text: str) -> str:
    """Compile a topic filter like Kafka's IncludeList: commas separate alternatives."""
    pattern = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ToolError(f"{pattern} is an invalid regex.") from error
    return pattern


def _document(partition: TopicPartition, place: Any) -> dict[str, object]:
    shown: dict[str, object] = {"topic": partition.topic, "partition": partition.partition}
    if isinstance(place, KafkaError):
        return {**shown, "error": java_text(place)}
    return {**shown, "offset": place.offset if place.offset >= 0 else None}


def _run(
    admin: Admin,
    is_selected: Callable[[TopicPartition], bool],
    timestamp: int,
    *,
    internal: bool,
) -> None:
    names = [topic.name for topic in admin.list_topics(include_internal=internal)]
    described = admin.describe_topics(names) if names else {}
    partitions = [
        TopicPartition(topic.name, partition.partition)
        for _, topic in sorted(described.items())
        if not isinstance(topic, KafkaError)
        for partition in topic.partitions
    ]
    requested = [partition for partition in partitions if is_selected(partition)]
    if not requested:
        raise ToolError("Could not match any topic-partitions with the specified filters")
    found = admin.list_offsets(dict.fromkeys(requested, timestamp))
    if wants_json():
        print_json([_document(partition, found[partition]) for partition in requested])
        return
    for partition in requested:
        place = found[partition]
        if isinstance(place, KafkaError):
            click.echo(
                f"Skip getting offsets for topic-partition {partition} due to error: "
                f"{java_text(place)}",
                err=True,
            )
        elif place.offset >= 0:
            click.echo(f"{partition.topic}:{partition.partition}:{place.offset}")
