"""The actions of `ottla reassign-partitions`.

Kafka: org.apache.kafka.tools.reassign.ReassignPartitionsCommand.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.options.failures import ToolError
from ottla.cli.options.json_output import print_json, wants_json
from ottla.cli.output.java_names import kafka_message
from ottla.cli.reassign.directories import (
    TimedOut,
    moves_under_way,
    places_of,
    replicas_in,
    start_moves,
    state_lines,
)
from ottla.cli.reassign.plans import (
    joined,
    parse_brokers,
    parse_directories,
    parse_executable,
    parse_plan,
    parse_topics,
    plan_text,
    plural,
    read_text,
)
from ottla.cli.reassign.throttles import (
    clear_throttles,
    planned_moves,
    set_directory_throttle,
    set_throttles,
)
from ottla.controller.partitions.placement import UsableBroker, place
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.cli.reassign.directories import Places
    from ottla.clients.blocking import Admin

    Replicas = dict[TopicPartition, tuple[int, ...]]

_ALREADY_UNDER_WAY = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one. The "
    "--additional flag can also be used to change the throttle by resubmitting the current "
    "reassignment."
)
_MUST_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
    "throttle is removed."
)


class Rates(NamedTuple):
    """Throttles in bytes a second, between brokers and between directories; -1 for none."""

    brokers: int
    directories: int


class Failed(Exception):
    """An outcome that ends the tool; its text is printed without a prefix."""


def generate(admin: Admin, topics_file: str, broker_list: str, *, by_rack: bool) -> None:
    """Print the replicas of topics, and a proposal for the brokers given."""
    text = read_text(topics_file)
    usable = set(parse_brokers(broker_list))
    current = _replicas_of(admin, parse_topics(text))
    brokers = [
        UsableBroker(node.node_id, node.rack if by_rack else None, fenced=False)
        for node in admin.describe_cluster().brokers
        if node.node_id in usable
    ]
    without_rack = sum(broker.rack is None for broker in brokers)
    if by_rack and without_rack not in (0, len(brokers)):
        raise ToolError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    proposed = _proposal(current, brokers)
    places = places_of(admin, replicas_in(current))
    click.echo(f"Current partition replica assignment\n{plan_text(current, places)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{plan_text(proposed, {})}")


def _proposal(current: Replicas, brokers: list[UsableBroker]) -> Replicas:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in sorted(current):
        topics.setdefault(partition.topic, []).append(partition)
    proposed: Replicas = {}
    for partitions in topics.values():
        try:
            placed = place(
                partition_count=len(partitions),
                replication_factor=len(current[partitions[0]]),
                brokers=brokers,
                rng=Random(),  # noqa: S311 - spreads replicas, as Kafka's tool does
            )
        except KafkaError as error:
            raise ToolError(kafka_message(error)) from error
        proposed.update(zip(partitions, placed, strict=True))
    return proposed


def _replicas_of(admin: Admin, topics: Iterable[str]) -> Replicas:
    """Return the replicas of all partitions of topics."""
    found: Replicas = {}
    for name, topic in admin.describe_topics(list(dict.fromkeys(topics))).items():
        if isinstance(topic, KafkaError):
            if topic.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                text = f"Topic {name} not found."
                raise KafkaError(topic.code, text) from topic
            raise topic
        for partition in topic.partitions:
            found[TopicPartition(str(name), partition.partition)] = partition.replicas
    return found


def execute(
    admin: Admin,
    plan_file: str,
    *,
    rates: Rates,
    timeout_ms: int,
    is_additional: bool,
    keeps_factor: bool,
) -> None:
    """Start the moves of a plan, between brokers and between directories."""
    text = read_text(plan_file)
    proposed, directories = parse_executable(text), parse_directories(text)
    active = admin.list_partition_reassignments()
    if active and not is_additional:
        raise Failed(_ALREADY_UNDER_WAY)
    _check_brokers(admin, proposed)
    every = _replicas_of(admin, (partition.topic for partition in proposed))
    unknown = [partition for partition in proposed if partition not in every]
    if unknown:
        problem = f"Unable to find partition: {joined(unknown)}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
    current = {partition: every[partition] for partition in proposed}
    shown = plan_text(current, places_of(admin, replicas_in(current)))
    click.echo(
        f"Current partition replica assignment\n\n{shown}\n\nSave this to use as the "
        "--reassignment-json-file option during rollback"
    )
    if max(rates) >= 0:
        click.echo(_MUST_VERIFY)
    if rates.brokers >= 0:
        set_throttles(admin, planned_moves(active, proposed, current), rates.brokers)
    if rates.directories >= 0:
        set_directory_throttle(admin, {broker for _, broker in directories}, rates.directories)
    outcomes = admin.alter_partition_reassignments(
        proposed, allow_replication_factor_change=not keeps_factor
    )
    _raise_failed("Error reassigning partition(s):", outcomes)
    names = joined(sorted(proposed))
    click.echo(f"Successfully started partition reassignment{plural(proposed)} for {names}")
    _start_moves(admin, directories, timeout_ms)


def _start_moves(admin: Admin, directories: Places, timeout_ms: int) -> None:
    try:
        start_moves(admin, directories, timeout_ms)
    except TimedOut as error:
        raise Failed(str(error)) from error


def _check_brokers(admin: Admin, proposed: Mapping[TopicPartition, Sequence[int]]) -> None:
    known = {node.node_id for node in admin.describe_cluster().brokers}
    named = {broker for replicas in proposed.values() for broker in replicas}
    for broker in sorted(named - known):
        raise ToolError(f"Unknown broker id {broker}")


def _raise_failed(title: str, outcomes: Mapping[TopicPartition, KafkaError | None]) -> None:
    lines = [
        f"{partition}: {kafka_message(error)}"
        for partition, error in sorted(outcomes.items())
        if error is not None
    ]
    if lines:
        raise Failed("\n".join((title, *lines)))


def verify(admin: Admin, plan_file: str, *, keeps_throttles: bool) -> None:
    """Print the state of each partition of a plan; remove the throttles once nothing moves."""
    text = read_text(plan_file)
    plan = parse_plan(text)
    active = admin.list_partition_reassignments()
    settled = [partition.topic for partition, _ in plan if partition not in active]
    described = admin.describe_topics(list(dict.fromkeys(settled))) if settled else {}
    lines = ["Status of partition reassignment:"]
    for partition, target in sorted(dict(plan).items()):
        if partition in active:
            lines.append(f"Reassignment of partition {partition} is still in progress.")
            continue
        current = _settled_replicas(described[partition.topic], partition.partition)
        if current == target:
            lines.append(f"Reassignment of partition {partition} is completed.")
        else:
            lines.append(
                f"There is no active reassignment of partition {partition}, but replica set is "
                f"{joined(current)} rather than {joined(target)}."
            )
    click.echo("\n".join(lines))
    directories = parse_directories(text)
    click.echo("\n".join(state_lines(admin, directories)))
    if not active and not keeps_throttles and not moves_under_way(admin, directories):
        clear_throttles(admin, plan)


def _settled_replicas(topic: object, partition: int) -> tuple[int, ...]:
    """Return the replicas of a partition that is not moving; none if its topic is unknown."""
    from ottla.clients.admin.topics import TopicDescription

    if isinstance(topic, TopicDescription):
        count = len(topic.partitions)
        if partition == count:  # as Kafka's tool, which fails for this number only
            raise ToolError(f"Index {count} out of bounds for length {count}")
        if partition > count:
            return ()
        return topic.partitions[partition].replicas
    if isinstance(topic, KafkaError) and topic.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise topic
    return ()


def cancel(admin: Admin, plan_file: str, *, timeout_ms: int, keeps_throttles: bool) -> None:
    """Cancel those moves of a plan that are under way, between brokers and directories."""
    text = read_text(plan_file)
    plan = parse_plan(text)
    active = sorted(admin.list_partition_reassignments([one for one, _ in plan]))
    if active:
        outcomes = admin.alter_partition_reassignments(dict.fromkeys(active))
        failed = [error for error in outcomes.values() if error is not None]
        _raise_failed(f"Error cancelling partition reassignment{plural(failed)} for:", outcomes)
        click.echo(
            f"Successfully cancelled partition reassignment{plural(active)} for: {joined(active)}"
        )
    else:
        click.echo("None of the specified partition reassignments are active.")
    moving = moves_under_way(admin, parse_directories(text))
    if moving:
        _start_moves(admin, moving, timeout_ms)
    else:
        click.echo("None of the specified partition moves are active.", nl=False)
    if not keeps_throttles:
        clear_throttles(admin, plan)


def list_active(admin: Admin) -> None:
    """Print all moves under way."""
    active = admin.list_partition_reassignments()
    if wants_json():
        print_json(
            [
                {**partition._asdict(), **move._asdict()}
                for partition, move in sorted(active.items())
            ]
        )
        return
    if not active:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for partition, move in sorted(active.items()):
        adding = f" adding: {joined(move.adding)}." if move.adding else ""
        removing = f" removing: {joined(move.removing)}." if move.removing else ""
        click.echo(f"{partition}: replicas: {joined(move.replicas)}.{adding}{removing}")
