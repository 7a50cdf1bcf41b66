"""The actions of `ottla reassign-partitions`.

Kafka: org.apache.kafka.tools.reassign.ReassignPartitionsCommand, with its throttles and moves
between log directories.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.options.flags import print_json, wants_json
from ottla.cli.output.failures import ToolError, kafka_message
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
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.controller.partitions.placement import UsableBroker, place
from ottla.coordinator.runtime.java_hash import in_hash_map_order
from ottla.errors import ErrorCode, KafkaError
from ottla.quota.replication import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.clients.admin.cluster import PartitionReassignment
    from ottla.clients.blocking import Admin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.clients.admin.cluster import ReplicaPlace
    from ottla.clients.blocking import Admin

    Replica = tuple[TopicPartition, int]
    Places = dict[Replica, str]

_PAUSE_S: Final = 0.1


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
    places = _places_of(admin, _replicas_in(current))
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
    shown = plan_text(current, _places_of(admin, _replicas_in(current)))
    click.echo(
        f"Current partition replica assignment\n\n{shown}\n\nSave this to use as the "
        "--reassignment-json-file option during rollback"
    )
    if max(rates) >= 0:
        click.echo(_MUST_VERIFY)
    if rates.brokers >= 0:
        _set_throttles(admin, planned_moves(active, proposed, current), rates.brokers)
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
        _clear_throttles(admin, plan)


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
        _clear_throttles(admin, plan)


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


class Move(NamedTuple):
    """The brokers that a partition is copied from and to."""

    sources: frozenset[int]
    destinations: frozenset[int]


def planned_moves(
    active: Mapping[TopicPartition, PartitionReassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """Return the moves under way and proposed; a move under way keeps its sources."""
    moves = {}
    for partition, move in active.items():
        adding = frozenset(move.adding)
        moves[partition] = Move(frozenset(move.replicas) - adding, adding)
    for partition, replicas in proposed.items():
        known = moves.get(partition)
        sources = frozenset(current[partition]) if known is None else known.sources
        moves[partition] = Move(sources, frozenset(replicas) - sources)
    return moves


def throttled_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, dict[str, str]]:
    """Return both settings of each topic, as sorted lists of partition:broker."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for (topic, partition), move in moves.items():
        leaders.setdefault(topic, set()).update(f"{partition}:{source}" for source in move.sources)
        followers.setdefault(topic, set()).update(
            f"{partition}:{destination}" for destination in move.destinations
        )
    return {
        topic: {
            LEADER_REPLICAS: joined(sorted(leaders[topic])),
            FOLLOWER_REPLICAS: joined(sorted(followers[topic])),
        }
        for topic in leaders
    }


def _set_throttles(admin: Admin, moves: Mapping[TopicPartition, Move], rate: int) -> None:
    """Throttle the replicas that move, and the brokers that take part."""
    _change(admin, ResourceType.TOPIC, throttled_replicas(moves))
    brokers = {broker for move in moves.values() for broker in move.sources | move.destinations}
    rates = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
    _change(admin, ResourceType.BROKER, {str(broker): rates for broker in sorted(brokers)})
    click.echo(f"The inter-broker throttle limit was set to {rate} B/s")


def set_directory_throttle(admin: Admin, brokers: Iterable[int], rate: int) -> None:
    """Throttle the moves between log directories of brokers."""
    rates = {DIRECTORY_RATE: str(rate)}
    _change(admin, ResourceType.BROKER, {str(broker): rates for broker in sorted(brokers)})
    click.echo(f"The replica-alter-dir throttle limit was set to {rate} B/s")


def _clear_throttles(admin: Admin, plan: Iterable[tuple[TopicPartition, Sequence[int]]]) -> None:
    """Remove the throttles of all brokers, and of the plan's brokers and topics."""
    brokers = {node.node_id for node in admin.describe_cluster().brokers}
    topics: dict[str, None] = {}
    for partition, replicas in plan:
        brokers.update(replicas)
        topics[partition.topic] = None
    rates = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE))
    ids = [str(broker) for broker in sorted(brokers)]
    click.echo(f"Clearing broker-level throttles on broker{plural(ids)} {joined(ids)}")
    _change(admin, ResourceType.BROKER, dict.fromkeys(ids, rates))
    names = in_hash_map_order(topics)
    click.echo(f"Clearing topic-level throttles on topic{plural(names)} {joined(names)}")
    replicas_of = dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS))
    _change(admin, ResourceType.TOPIC, dict.fromkeys(names, replicas_of))


def _change(
    admin: Admin, kind: ResourceType, settings: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Set settings of each resource, or remove those with None; raises the first error."""
    changes = {ConfigResource(kind, name): dict(values) for name, values in settings.items()}
    if not changes:
        return
    for outcome in admin.alter_configs(changes).values():
        if outcome is not None:
            raise outcome


class TimedOut(Exception):
    """Replicas that did not appear on their brokers in time."""


def _places_of(admin: Admin, replicas: Iterable[Replica]) -> Places:
    """Return the directories of those replicas that are found."""
    found = admin.describe_replica_log_dirs(replicas)
    return {
        replica: place.current_path
        for replica, place in found.items()
        if place.current_path is not None
    }


def _replicas_in(assignment: Mapping[TopicPartition, Sequence[int]]) -> list[Replica]:
    """Return each replica of partitions as partition and broker."""
    return [
        (partition, replica) for partition, replicas in assignment.items() for replica in replicas
    ]


def start_moves(admin: Admin, targets: Places, timeout_ms: int) -> None:
    """Move replicas to directories; a replica that its broker does not have yet is retried."""
    deadline = time.monotonic() + timeout_ms / 1000
    waiting = dict(targets)
    while waiting:
        started = _start(admin, waiting)
        for replica in sorted(started):
            partition, broker = replica
            click.echo(
                f"Successfully started moving log directory to {waiting.pop(replica)} for replica "
                f"{partition} with broker {broker} "
            )
        if waiting and time.monotonic() >= deadline:
            names = joined(_name(replica) for replica in sorted(waiting))
            raise TimedOut(
                f"Timed out before log directory move{plural(waiting)} could be started "
                f"for: {names}"
            )
        if waiting:
            time.sleep(_PAUSE_S)


def _start(admin: Admin, targets: Places) -> list[Replica]:
    started = []
    for replica, error in admin.alter_replica_log_dirs(targets).items():
        if error is None:
            started.append(replica)
        elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
            raise ToolError(f"Failed to alter dir for {_name(replica)}") from error
    return started


def _name(replica: Replica) -> str:
    partition, broker = replica
    return f"{partition}-{broker}"


def moves_under_way(admin: Admin, targets: Places) -> Places:
    """Return those replicas that move to any directory, each with the one it is in."""
    places = admin.describe_replica_log_dirs(targets) if targets else {}
    return {
        replica: place.current_path
        for replica, place in places.items()
        if place.current_path is not None and place.future_path is not None
    }


def state_lines(admin: Admin, targets: Places) -> list[str]:
    """Return the state of each replica with a directory."""
    places = admin.describe_replica_log_dirs(targets) if targets else {}
    return [_state(replica, places[replica], targets[replica]) for replica in sorted(targets)]


def _state(replica: Replica, place: ReplicaPlace, target: str) -> str:
    partition, broker = replica
    if place.current_path is None:
        return (
            f"Partition {partition} is not found in any live log dir on broker {broker}. There is "
            "likely an offline log directory on the broker."
        )
    if place.future_path == target:
        return f"Reassignment of replica {_name(replica)} is still in progress."
    if place.future_path is not None:
        return (
            f"Partition {partition} on broker {broker} is being moved to log dir "
            f"{place.future_path} instead of {target}."
        )
    if place.current_path == target:
        return f"Reassignment of replica {_name(replica)} completed successfully."
    return (
        f"Partition {partition} on broker {broker} is not being moved from log dir "
        f"{place.current_path} to {target}."
    )
