"""`ottla transactions`: list, describe and abort transactions, find hanging ones.

Kafka: bin/kafka-transactions.sh, org.apache.kafka.tools.TransactionsCommand.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from ottla.cli.options.argparse4j import INTEGER, LONG, ToolGroup, need
from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import json_option, place_options, print_json, wants_json
from ottla.cli.output.failures import fail, failures_reported
from ottla.cli.output.tables import table
from ottla.clients.admin.transactions import AbortSpec
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition
from ottla.views.transactions import hanging_transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.clients.admin.cluster import ProducerState
    from ottla.clients.admin.transactions import TransactionDescription
    from ottla.clients.blocking import Admin
    from ottla.views.transactions import OpenTransaction

_LISTING: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIPTION: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
_PRODUCERS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_HANGING: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
_CAPITAL: Final = re.compile("(?<!^)(?=[A-Z])")
_MS_PER_MINUTE: Final = 60_000
_UNDESCRIBED: Final = "Failed to describe transaction state of transactional-id"
_IDENTIFY: Final = (
    "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or "
    "above) or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
)

EXAMPLES = """
\b
Examples:
  ottla transactions --bootstrap-server localhost:9092 list
  ottla transactions --bootstrap-server localhost:9092 describe --transactional-id billing
  ottla transactions --bootstrap-server localhost:9092 describe-producers --topic orders \\
      --partition 0
  ottla transactions --bootstrap-server localhost:9092 find-hanging --broker-id 1
  ottla transactions --bootstrap-server localhost:9092 abort --topic orders --partition 0 \\
      --start-offset 1200
  ottla transactions --bootstrap-server localhost:9092 forceTerminateTransaction \\
      --transactionalId billing
"""


@click.group("transactions", cls=ToolGroup, epilog=EXAMPLES)
@place_options
def transactions(**options: Any) -> None:
    """List, describe and abort transactions, and find hanging ones."""
    click.get_current_context().obj = options


def _run(action: Callable[[Admin], None]) -> None:
    options: dict[str, Any] = click.get_current_context().obj
    servers = need(options["bootstrap_server"] or None, "--bootstrap-server")
    with failures_reported(), open_admin(servers, options["command_config"]) as admin:
        action(admin)


def _print(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print Kafka's table, or with --json a list with the columns' names in snake case."""
    if wants_json():
        names = [_CAPITAL.sub("_", column.partition("(")[0]).lower() for column in columns]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    for line in table([columns, *([str(cell) for cell in row] for row in rows)]):
        click.echo(line)


def _fail_for(what: str, cause: str) -> NoReturn:
    fail(f"{what}: {cause}. Enable debug logging for additional detail.")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# ---------------------------------------------------------------- list and describe


@transactions.command("list")
@json_option
@click.option(
    "--duration-filter",
    type=LONG,
    default=-1,
    help="Only transactions open for longer than this, ms; below 0: all.",
)
@click.option("--transactional-id-pattern", help="Only ids that match this regular expression.")
def list_transactions(*, duration_filter: int, transactional_id_pattern: str | None) -> None:
    """List transactional ids."""

    def show(admin: Admin) -> None:
        try:
            listings = admin.list_transactions(
                duration_ms=duration_filter, pattern=transactional_id_pattern
            )
        except KafkaError as error:
            _fail_for("Failed to list transactions", error.message)
        _print(_LISTING, listings)

    _run(show)


@transactions.command()
@json_option
@click.option("--transactional-id", help="The id.")
def describe(*, transactional_id: str | None) -> None:
    """Describe the state of an active transactional id."""
    name = need(transactional_id, "--transactional-id")

    def show(admin: Admin) -> None:
        description = admin.describe_transactions([name])[name]
        if isinstance(description, KafkaError):
            _fail_for(f"{_UNDESCRIBED} `{name}`", _cause(name, description))
        _print(_DESCRIPTION, [_description_row(name, description)])

    _run(show)


def _cause(name: str, error: KafkaError) -> str:
    if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return error.message
    return (
        f"DescribeTransactions request for transactionalId `{name}` failed because the ID could "
        "not be found"
    )


def _description_row(name: str, description: TransactionDescription) -> tuple[object, ...]:
    start, duration = "None", "None"
    if description.start_ms is not None:
        start, duration = str(description.start_ms), str(_now_ms() - description.start_ms)
    return (
        description.coordinator,
        name,
        description.producer_id,
        description.producer_epoch,
        description.state,
        description.timeout_ms,
        start,
        duration,
        ",".join(str(partition) for partition in sorted(description.partitions)),
    )


@transactions.command("describe-producers")
@json_option
@click.option("--broker-id", type=INTEGER, help="A replica's broker, in place of the leader.")
@click.option("--topic", help="The topic.")
@click.option("--partition", type=INTEGER, help="The partition.")
def describe_producers(*, broker_id: int | None, topic: str | None, partition: int | None) -> None:
    """Describe the states of active producers of a partition."""
    where = _needed_partition(topic, partition)

    def show(admin: Admin) -> None:
        producers = _producers_of(admin, where, broker_id)
        _print(_PRODUCERS, map(_producer_row, producers))

    _run(show)


def _producers_of(
    admin: Admin, partition: TopicPartition, broker_id: int | None = None
) -> list[ProducerState]:
    states = admin.describe_producers([partition], broker_id=broker_id)[partition]
    if isinstance(states, KafkaError):
        replica = "leader" if broker_id is None else f"broker {broker_id}"
        text = f"Failed to describe producers for partition {partition} on {replica}"
        _fail_for(text, states.message)
    return states


def _producer_row(producer: ProducerState) -> tuple[object, ...]:
    return (
        producer.producer_id,
        producer.producer_epoch,
        -1 if producer.coordinator_epoch is None else producer.coordinator_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        "None" if producer.transaction_start_offset is None else producer.transaction_start_offset,
    )


# ---------------------------------------------------------------- abort


@transactions.command()
@click.option("--topic", help="The topic.")
@click.option("--partition", type=INTEGER, help="The partition.")
@click.option("--start-offset", type=LONG, help="The first offset of the transaction.")
@click.option("--producer-id", type=LONG, help="With brokers before 3.0: the producer id.")
@click.option("--producer-epoch", type=INTEGER, help="With brokers before 3.0: its epoch.")
@click.option("--coordinator-epoch", type=INTEGER, help="With brokers before 3.0.")
def abort(
    *,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction."""
    where = _needed_partition(topic, partition)
    if start_offset is None and producer_id is None:
        fail(_IDENTIFY)
    if start_offset is None:
        epoch = _old_value(producer_epoch, "--producer-epoch")
        coordinator = max(_old_value(coordinator_epoch, "--coordinator-epoch"), 0)
        known = AbortSpec(where, producer_id or 0, epoch, coordinator)
        _run(lambda admin: admin.abort_transaction(known))
        return
    _run(lambda admin: admin.abort_transaction(_open_at(admin, where, start_offset)))


def _old_value(value: int | None, flag: str) -> int:
    if value is None:
        fail(f"Missing required argument {flag}")
    return value


def _open_at(admin: Admin, partition: TopicPartition, start_offset: int) -> AbortSpec:
    """Return the open transaction that begins at an offset."""
    states = _producers_of(admin, partition)
    producer = next(
        (state for state in states if state.transaction_start_offset == start_offset), None
    )
    if producer is None:
        fail(
            f"Could not find any open transactions starting at offset {start_offset} on partition "
            f"{partition}"
        )
    # before its first transaction ends, a producer has no coordinator epoch
    return AbortSpec(
        partition, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch or 0
    )


# ---------------------------------------------------------------- hanging transactions


@transactions.command("find-hanging")
@json_option
@click.option("--broker-id", type=INTEGER, help="Search the replicas of one broker.")
@click.option(
    "--max-transaction-timeout",
    type=INTEGER,
    default=15,
    help="Minutes; younger ones are omitted.",
)
@click.option("--topic", help="Search one topic.")
@click.option("--partition", type=INTEGER, help="Search one partition of the topic.")
def find_hanging(
    *, broker_id: int | None, max_transaction_timeout: int, topic: str | None, partition: int | None
) -> None:
    """Find transactions that are open in a log and not known to a coordinator."""
    if topic is None and broker_id is None:
        fail(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope "
            "of the search"
        )
    if partition is not None and topic is None:
        fail("The --partition argument requires --topic to be provided")
    limit_ms = max_transaction_timeout * _MS_PER_MINUTE

    def show(admin: Admin) -> None:
        partitions = _searched_partitions(admin, broker_id, topic, partition)
        hanging = hanging_transactions(admin, partitions, _now_ms() - limit_ms, broker_id)
        _print(_HANGING, map(_hanging_row, hanging))

    _run(show)


def _searched_partitions(
    admin: Admin, broker_id: int | None, topic: str | None, partition: int | None
) -> list[TopicPartition]:
    """Return the partitions to search: of a topic, or those with a replica on the broker."""
    names = [topic] if topic is not None else [str(listing.name) for listing in admin.list_topics()]
    partitions = []
    for name, description in admin.describe_topics(names).items():
        if isinstance(description, KafkaError):
            _fail_for(f"Failed to describe {len(names)} topics", description.message)
        partitions += [
            TopicPartition(str(name), replicas.partition)
            for replicas in description.partitions
            if (broker_id is None or broker_id in replicas.replicas)
            and (partition is None or replicas.partition == partition)
        ]
    return partitions


def _hanging_row(transaction: OpenTransaction) -> tuple[object, ...]:
    producer = transaction.producer
    return (
        *transaction.partition,
        producer.producer_id,
        producer.producer_epoch,
        -1 if producer.coordinator_epoch is None else producer.coordinator_epoch,
        -1 if producer.transaction_start_offset is None else producer.transaction_start_offset,
        producer.last_timestamp,
        (_now_ms() - producer.last_timestamp) // _MS_PER_MINUTE,
    )


def _needed_partition(topic: str | None, partition: int | None) -> TopicPartition:
    index = need(partition, "--partition")  # Kafka's parser reports it first
    return TopicPartition(need(topic, "--topic"), index)


# ---------------------------------------------------------------- termination


@transactions.command("forceTerminateTransaction")
@click.option("--transactionalId", "transactional_id", help="The id.")
def force_terminate(*, transactional_id: str | None) -> None:
    """Abort the ongoing transaction of a transactional id, and fence its producer."""
    name = need(transactional_id, "--transactionalId")

    def terminate(admin: Admin) -> None:
        outcome = admin.fence_producers([name])[name]
        if isinstance(outcome, KafkaError):
            raise outcome

    _run(terminate)
