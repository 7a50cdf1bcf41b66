"""Files that this project adds to a checkpoint: its topology, cluster, tasks and first offsets.

Kafka: org.apache.kafka.streams.AutoOffsetReset (KIP-1106), processor.internals.StreamThread's
resets; a changed topology there meets stores and topics of other names.

Spark has one option `startingOffsets` for all topics of a source; here it is made of what each
source of the topology says. What was found for a new checkpoint is kept there: Spark asks for the
start again if the first micro-batch is repeated, and the end of a topic is another one then.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.streams.columns.operators import ColumnOperator
from ottla.streams.dsl.settings import EARLIEST, AutoOffsetReset
from ottla.streams.errors import StreamsException
from ottla.streams.topology.topology import ProcessorNode
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.admin.blocking import Admin
    from ottla.spark.checkpoint import Checkpoint
    from ottla.streams.plan.plan import Plan
    from ottla.streams.topology.topology import Topology


TOPOLOGY_FILE: Final = "ottla-topology.txt"
CLUSTER_FILE: Final = "ottla-cluster.txt"
TASKS_FILE: Final = "ottla-tasks.txt"
"""What the checkpoint's directory has besides Spark's files."""
_TASKS: Final = re.compile(r"Sub-topology: (\d+) tasks: (\d+)\n")


def check_cluster(checkpoint: Checkpoint, cluster_id: str) -> None:
    """Note the cluster of a new checkpoint; StreamsException for an old one of another cluster."""
    found = _noted(checkpoint, CLUSTER_FILE, cluster_id)
    if found != cluster_id:
        raise StreamsException(
            f"the checkpoint {checkpoint.location} belongs to cluster {found}, the brokers to "
            f"{cluster_id}: its offsets mean nothing there; take a new checkpoint, or correct "
            "bootstrap_servers"
        )


def check_topology(checkpoint: Checkpoint, topology: Topology) -> None:
    """Note the topology of a new checkpoint; StreamsException for an old one of another topology.

    Functions may change; nodes, stores and topics may not, since Spark's state is named by them.
    """
    text = topology.describe() + _columns(topology) + _bounded(topology) + _with_headers(topology)
    found = _noted(checkpoint, TOPOLOGY_FILE, text)
    if found != text:
        lines = difflib.unified_diff(
            found.splitlines(), text.splitlines(), "checkpoint", "application", lineterm="", n=0
        )
        raise StreamsException(
            f"the checkpoint {checkpoint.location} belongs to another topology; take a new "
            "checkpoint, or the old topology:\n" + "\n".join(lines)
        )


def check_tasks(checkpoint: Checkpoint, plan: Plan) -> None:
    """Note how many tasks have state; StreamsException if topics have other partitions since.

    State belongs to a task, keys to a partition: with another number of them a key's state would
    be in another task. Kafka refuses it, too, by the partitions of its changelog topics.
    """
    tasks = {
        stage.sub_topology.number: plan.task_count(stage) for stage in plan.stages if stage.stores
    }
    noted = noted_tasks(checkpoint)
    known = {number: count for number, count in tasks.items() if count}  # 0: no topic matches yet
    if any(noted.get(number, count) != count for number, count in known.items()):
        raise StreamsException(
            f"the checkpoint {checkpoint.location} has state of {_in_one_line(noted)}, which the "
            f"partitions of the topics make {_in_one_line(tasks)} now: keys belong to other "
            "tasks; take a new checkpoint"
        )
    text = "".join(f"{line}\n" for line in _lines({**noted, **known}))
    if text != checkpoint.read_text(TASKS_FILE):
        checkpoint.write_text(TASKS_FILE, text)


def noted_tasks(checkpoint: Checkpoint) -> dict[int, int]:
    """Return how many tasks of each sub-topology have state, as a checkpoint notes."""
    text = "" if checkpoint.is_new() else checkpoint.read_text(TASKS_FILE) or ""
    return {int(number): int(count) for number, count in _TASKS.findall(text)}


def _noted(checkpoint: Checkpoint, name: str, text: str) -> str:
    """Return what an old checkpoint notes; a new one, or one without the note, notes the text."""
    found = checkpoint.read_text(name)
    if found is None or (found != text and checkpoint.is_new()):
        checkpoint.write_text(name, text)
        return text
    return found


def _in_one_line(tasks: dict[int, int]) -> str:
    return ", ".join(_lines(tasks)).lower()


def _lines(tasks: dict[int, int]) -> list[str]:
    return [f"Sub-topology: {number} tasks: {count}" for number, count in tasks.items()]


def _bounded(topology: Topology) -> str:
    """Return a line that names the stores whose values have the numbers of their last uses."""
    names = [store.name for store in topology.stores.values() if store.max_entries is not None]
    return f"Bounded: {', '.join(names)}\n" if names else ""


def _with_headers(topology: Topology) -> str:
    """Return a line that names the stores whose values have headers."""
    names = [store.name for store in topology.stores.values() if store.has_headers]
    return f"Headers: {', '.join(names)}\n" if names else ""


def _columns(topology: Topology) -> str:
    """Return a line that names the operators with columns, which divide the state otherwise."""
    names = [
        node.name
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and isinstance(node.supplier, ColumnOperator)
    ]
    return f"Columns: {', '.join(names)}\n" if names else ""


STARTS_FILE: Final = "ottla-starting-offsets.json"
_OTHER_STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp")


class Start(NamedTuple):
    """What the option is made of: the options given, the checkpoint, the group, the time."""

    options: Mapping[str, str]
    checkpoint: Checkpoint
    group_id: str
    now_ms: int


def starting_offsets(plan: Plan, admin: Admin, start: Start) -> str:
    """Return the option; StreamsException where a source with `none` has no committed offset."""
    given = {name.lower(): value for name, value in start.options.items()}
    word = given.get("startingoffsets", "earliest").strip()
    own = policies(plan)
    if word.lower() in ("earliest", "latest"):
        default = AutoOffsetReset(word.lower())
        all_of = {topic: own.get(topic, default) for topic in plan.source_topics()}
        if set(all_of.values()) <= {EARLIEST}:
            return "earliest"
        return _kept(plan, admin, start, all_of)
    if explicit := [topic for topic in own if own[topic] != EARLIEST]:
        raise _conflict("startingOffsets", explicit)
    return word


def check_options(topology: Topology, options: Mapping[str, str]) -> None:
    """Raise StreamsException where options for all topics would hide those of a source.

    It may be that of a pattern, whose topics are not known yet.
    """
    explicit = [
        name
        for source in topology.sources()
        if not source.is_global and source.offset_reset_policy not in (None, EARLIEST)
        for name in source.topics or [source.topics_text]
    ]
    given = {name.lower() for name in options}
    for name in _OTHER_STARTS:
        if explicit and name.lower() in given:
            raise _conflict(name, explicit)


def policies(plan: Plan) -> dict[str, AutoOffsetReset]:
    """Return the start of each topic that has its own.

    Global tables and internal topics are read from their beginning, whatever is given.
    """
    found = dict.fromkeys(plan.real_topics.values(), EARLIEST)
    for source in plan.topology.sources():
        policy = EARLIEST if source.is_global else source.offset_reset_policy
        if policy is not None:
            found.update(dict.fromkeys(plan.topics_of(source), policy))
    return found


def _conflict(option: str, topics: list[str]) -> StreamsException:
    return StreamsException(
        f"{option} is for all topics, but {', '.join(topics)} have an offset_reset_policy: "
        "give startingOffsets=earliest or latest, or leave it out"
    )


def _kept(plan: Plan, admin: Admin, start: Start, policy_of: Mapping[str, AutoOffsetReset]) -> str:
    """Return the offsets that the checkpoint has; they are found once for a new one."""
    checkpoint = start.checkpoint
    noted = json.loads(checkpoint.read_text(STARTS_FILE) or "{}")
    counts = _counts(plan, policy_of)
    request = {
        topic: [policy.kind, policy.duration_ms, counts[topic]]
        for topic, policy in policy_of.items()
    }
    if not checkpoint.is_new():  # a repeated first micro-batch starts as before
        return _repeated(counts, noted["offsets"]) if noted else "earliest"
    if noted.get("request") != request:
        noted = {"request": request, "offsets": _found(admin, start, counts, policy_of)}
        checkpoint.write_text(STARTS_FILE, json.dumps(noted))
    return json.dumps(noted["offsets"])


def _repeated(counts: Mapping[str, int], offsets: dict[str, dict[str, int]]) -> str:
    """Return the offsets that are noted; topics of a pattern may have appeared since."""
    for topic in counts.keys() - offsets.keys():
        earliest = {str(number): EARLIEST_TIMESTAMP for number in range(counts[topic])}
        offsets[topic] = earliest
    return json.dumps(offsets)


def _counts(plan: Plan, topics: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of partitions of topics, by their real names."""
    internal = {real: name for name, real in plan.real_topics.items()}
    return {topic: plan.partitions[internal.get(topic, topic)] for topic in topics}


def _found(
    admin: Admin,
    start: Start,
    counts: Mapping[str, int],
    policy_of: Mapping[str, AutoOffsetReset],
) -> dict[str, dict[str, int]]:
    requested: dict[TopicPartition, int] = {}
    without: list[TopicPartition] = []
    offsets: dict[TopicPartition, int] = {}
    for topic, policy in policy_of.items():
        places = [TopicPartition(topic, number) for number in range(counts[topic])]
        if policy == EARLIEST:  # as late as possible: retention may delete more until then
            offsets.update(dict.fromkeys(places, EARLIEST_TIMESTAMP))
        elif policy.kind == "none":
            without += places
        else:
            requested.update(dict.fromkeys(places, _timestamp(policy, start.now_ms)))
    offsets.update(_listed(admin, requested))
    offsets.update(_committed(admin, start.group_id, without))
    document: dict[str, dict[str, int]] = {}
    for place, offset in offsets.items():
        document.setdefault(place.topic, {})[str(place.partition)] = offset
    return document


def _timestamp(policy: AutoOffsetReset, now_ms: int) -> int:
    return LATEST_TIMESTAMP if policy.kind == "latest" else max(0, now_ms - policy.duration_ms)


def _listed(admin: Admin, requested: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the offsets at times; the end where no record is that late."""
    found = listed_offsets(admin, requested)
    late = {place: LATEST_TIMESTAMP for place, offset in found.items() if offset < 0}
    return {**found, **listed_offsets(admin, late)}


def listed_offsets(
    admin: Admin, requested: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offsets at times, of committed records; KafkaError where there is none."""
    found: dict[TopicPartition, int] = {}
    answers = admin.list_offsets(requested, read_committed=True) if requested else {}
    for place, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        found[place] = answer.offset
    return found


def _committed(admin: Admin, group: str, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    if not places:
        return {}
    answers = admin.list_group_offsets(group, places)
    found = {place: one.offset for place, one in answers.items() if one is not None}
    if missing := sorted({place.topic for place in places if place not in found}):
        raise StreamsException(
            f"No valid committed offset found for input {missing} of group {group}, and its "
            "offset_reset_policy is none: commit offsets (ottla consumer-groups --reset-offsets), "
            "or give earliest, latest or by_duration"
        )
    return found
