"""`ottla leader-election`: elect preferred or unclean leaders.

Kafka: bin/kafka-leader-election.sh, org.apache.kafka.tools.LeaderElectionCommand.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import command_config_file, server_options
from ottla.cli.options.joptsimple import INTEGER, ToolCommand
from ottla.cli.options.json_files import (
    json_array,
    json_number,
    json_object,
    json_string,
    read_json,
)
from ottla.cli.output.failures import ToolError, fail, failures_reported, java_text
from ottla.clients.admin.cluster import PREFERRED, UNCLEAN
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

ELECTION_TYPES = {"preferred": PREFERRED, "unclean": UNCLEAN}

EXAMPLES = """
\b
Examples:
  ottla leader-election --bootstrap-server localhost:9092 --election-type preferred \\
      --all-topic-partitions
  ottla leader-election --bootstrap-server localhost:9092 --election-type unclean \\
      --topic orders --partition 3
\b
--path-to-json-file names a file like {"partitions": [{"topic": "foo", "partition": 1}]}.
"""


@click.command("leader-election", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@click.option("--admin.config", "admin_config", metavar="FILE", hidden=True)
@click.option("--election-type", metavar="TYPE", help="REQUIRED. preferred or unclean.")
@click.option("--topic", help="The topic, with --partition.")
@click.option("--partition", type=INTEGER, help="The partition, with --topic.")
@click.option("--path-to-json-file", metavar="FILE", help="A file that lists partitions.")
@click.option("--all-topic-partitions", is_flag=True, help="All eligible partitions.")
def leader_election(**options: Any) -> None:
    """Elect new leaders for partitions."""
    with failures_reported():
        _check(options)
        partitions = _partitions(options)
        config_file = command_config_file(options, "admin.config")
        with open_admin(options["bootstrap_server"], config_file) as admin:
            kind = options["election_type"].lower()
            outcomes = admin.elect_leaders(ELECTION_TYPES[kind], partitions)
    _report(outcomes, kind.upper())


def _check(options: dict[str, Any]) -> None:
    kind = options["election_type"]
    if kind is not None and kind.lower() not in ELECTION_TYPES:
        raise ToolError(f"Cannot parse argument '{kind}' of option election-type")
    needed = [
        name.replace("_", "-")
        for name in ("bootstrap_server", "election_type")
        if options[name] is None
    ]
    if needed:
        raise ToolError(f"Missing required option(s): {', '.join(needed)}")
    scopes = ("topic", "all_topic_partitions", "path_to_json_file")
    if sum(options[scope] not in (None, False) for scope in scopes) != 1:
        names = ", ".join(scope.replace("_", "-") for scope in scopes)
        raise ToolError(f"One and only one of the following options is required: {names}")
    if options["topic"] is not None and options["partition"] is None:
        raise ToolError("Missing required option(s): partition")
    if options["topic"] is None and options["partition"] is not None:
        raise ToolError("Option partition is only allowed if topic is used")


def _partitions(options: dict[str, Any]) -> list[TopicPartition] | None:
    if options["all_topic_partitions"]:
        return None
    if options["topic"] is not None:
        return [TopicPartition(options["topic"], options["partition"])]
    path = options["path_to_json_file"]
    try:
        document = read_json(path)
    except ToolError as error:
        if "Unable" in str(error):
            raise ToolError(f"java.io.IOException: {error}") from error
        raise ToolError("Replica election data is empty") from error
    return parse_partitions(document)


def parse_partitions(document: Any) -> list[TopicPartition]:
    """Parse the file's document; raises ToolError with Kafka's text."""
    if "partitions" not in json_object(document):
        raise ToolError('Replica election data is missing "partitions" field')
    found = [
        TopicPartition(json_string(entry, "topic"), json_number(entry, "partition", 32))
        for entry in json_array(document["partitions"])
    ]
    twice = [str(one) for one, count in Counter(found).items() if count > 1]
    if twice:
        raise ToolError(
            f"Replica election data contains duplicate partitions: [{', '.join(twice)}]"
        )
    return found


def _report(outcomes: dict[TopicPartition, KafkaError | None], kind: str) -> None:
    elected = [str(one) for one, error in outcomes.items() if error is None]
    noop, failed = [], {}
    for partition, error in outcomes.items():
        if error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
            noop.append(str(partition))
        elif error is not None:
            failed[partition] = error
    if elected:
        click.echo(
            f"Successfully completed leader election ({kind}) for partitions {', '.join(elected)}"
        )
    if noop:
        click.echo(f"Valid replica already elected for partitions {', '.join(noop)}")
    for partition, error in failed.items():
        click.echo(
            f"Error completing leader election ({kind}) for partition: {partition}: "
            f"{java_text(error)}"
        )
    if failed:
        fail(f"{len(failed)} replica(s) could not be elected")
