"""`ottla delete-records`: delete the records of partitions below an offset.

Kafka: bin/kafka-delete-records.sh, org.apache.kafka.tools.DeleteRecordsCommand.
"""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import require, server_options
from ottla.cli.options.joptsimple import ToolCommand
from ottla.cli.options.json_files import (
    json_array,
    json_number,
    json_object,
    json_string,
    read_json,
)
from ottla.cli.output.failures import ToolError, failures_reported, java_text
from ottla.errors import KafkaError
from ottla.types import TopicPartition

EARLIEST_VERSION = 1

EXAMPLES = """
\b
Examples:
  ottla delete-records --bootstrap-server localhost:9092 --offset-json-file offsets.json
\b
The offsets are the first to keep; -1 deletes all records of a partition:
{"partitions": [{"topic": "foo", "partition": 1, "offset": 7}], "version": 1}
"""


@click.command("delete-records", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@click.option("--offset-json-file", metavar="FILE", help="REQUIRED. The offset of each partition.")
def delete_records(**options: Any) -> None:
    """Delete the records of partitions below an offset."""
    require(options["bootstrap_server"], "bootstrap-server")
    require(options["offset_json_file"], "offset-json-file")
    with failures_reported():
        offsets = parse_offsets(read_json(options["offset_json_file"]))
        with open_admin(options["bootstrap_server"], options["command_config"]) as admin:
            click.echo("Executing records delete operation")
            outcomes = admin.delete_records(offsets)
    click.echo("Records delete operation completed:")
    for partition, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            click.echo(f"partition: {partition}\terror: {java_text(outcome)}")
        else:
            click.echo(f"partition: {partition}\tlow_watermark: {outcome}")


def parse_offsets(document: Any) -> dict[TopicPartition, int]:
    """Parse the file's document; raises ToolError with Kafka's text."""
    version = EARLIEST_VERSION
    if "version" in json_object(document):
        version = json_number(document, "version", 32)
    if version != EARLIEST_VERSION:
        raise ToolError(f"Not supported version field value {version}")
    if "partitions" not in document:
        raise ToolError("Missing partitions field")
    offsets: dict[TopicPartition, int] = {}
    twice = []
    for entry in json_array(document["partitions"]):
        topic, number = json_string(entry, "topic"), json_number(entry, "partition", 32)
        partition = TopicPartition(topic, number)
        if partition in offsets:
            twice.append(str(partition))
        offsets[partition] = json_number(entry, "offset", 64)
    if twice:
        raise ToolError(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return offsets
