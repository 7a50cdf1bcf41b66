"""Where a topic is read from by an application that starts for the first time.

Kafka: org.apache.kafka.streams.AutoOffsetReset (KIP-1106), processor.internals.StreamThread's
resets. Spark has one option `startingOffsets` for all topics of a source; here it is made of what
each source of the topology says. What was found for a new checkpoint is kept there: Spark asks for
the start again if the first micro-batch is repeated, and the end of a topic is another one then.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.streams.errors import StreamsException
from ottla.streams.settings import EARLIEST, AutoOffsetReset
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.admin.blocking import Admin
    from ottla.spark.checkpoint import Checkpoint
    from ottla.streams.plan.plan import Plan
    from ottla.streams.topology import Topology

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
