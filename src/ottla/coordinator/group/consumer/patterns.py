"""Subscriptions by pattern: RE2 expressions, resolved to topics in slices between requests.

RE2 matches in linear time, so a slice of topics bounds a turn of the loop for any expression. Kafka
resolves in a thread of its own, at most every ten seconds for a group.

Kafka: GroupMetadataManager.{maybeUpdateRegularExpressions, refreshRegularExpressions,
handleRegularExpressionsResult}, Utils.throwIfRegularExpressionIsInvalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import re2

from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.group import ResolvedRegex
from ottla.coordinator.group.consumer.subscription import metadata_hash
from ottla.coordinator.runtime.result import Result, empty_result
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.consumer.member import ConsumerMember
    from ottla.coordinator.runtime import CoordinatorRecord

MIN_INTERVAL_MS: Final = 10_000
_TOPICS_IN_A_TURN: Final = 1000
_MAX_MEMORY_BYTES: Final = 1 << 20
_DESCRIPTIONS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


def compiled(pattern: str) -> Any:
    """Return the compiled expression; INVALID_REGULAR_EXPRESSION for one that RE2 refuses."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        problem = error.args[0] if error.args else ""
        text = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: "
            f"{_description(text)}.",
        ) from error


def _description(problem: str) -> str:
    """Return what RE2/J, which Kafka uses, says of a problem."""
    kind, _, place = problem.partition(": ")
    if place.startswith("(?<"):
        kind = "invalid named capture group"
    return _DESCRIPTIONS.get(kind, kind)


def update(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    output: list[CoordinatorRecord],
    *,
    may_describe: Callable[[str], bool],
) -> tuple[bool, bool]:
    """Follow a member's pattern: whether it has changed, and whether its topics are known already.

    Begins to resolve the group's patterns where they are new or no longer current, to the topics
    that the member's client may describe.
    """
    old, new = member.subscribed_regex or "", updated.subscribed_regex or ""
    has_changed = old != new
    is_resolved = False
    if has_changed:
        if old and group.regex_counts.get(old) == 1:
            output.append(records.regex_tombstone(group.group_id, old))
        if new and not group.regex_counts.get(new):
            compiled(new)
        else:
            is_resolved = not new or new in group.resolved
    requested = {name for name in group.regex_counts if name != old or group.regex_counts[name] > 1}
    if new:
        requested.add(new)
    if requested and _is_due(groups, group, requested):
        _start(groups, group.group_id, sorted(requested), may_describe)
    return has_changed, is_resolved


def _is_due(groups: ConsumerGroups, group: ConsumerGroup, requested: set[str]) -> bool:
    """Whether to look for topics again; a time in the future is one of a clock that was ahead."""
    if group.group_id in groups.resolving:
        return False
    known = [group.resolved[pattern] for pattern in requested if pattern in group.resolved]
    last_ms = max((one.timestamp_ms for one in known), default=0)
    now_ms = groups.clock.now_ms()
    if last_ms <= now_ms <= last_ms + MIN_INTERVAL_MS:
        return False
    interval_ms = groups.settings(group.group_id).regex_refresh_interval_ms
    return (
        len(known) < len(requested)
        or min(one.version for one in known) < groups.topics_version
        or not last_ms <= now_ms <= last_ms + interval_ms
    )


def _key(group_id: str) -> Hashable:
    return "consumer-regex", group_id


def _start(
    groups: ConsumerGroups,
    group_id: str,
    patterns: list[str],
    may_describe: Callable[[str], bool],
) -> None:
    """Resolve patterns in turns of the timer."""
    names = sorted(groups.topics.topic_names())
    version = groups.topics_version
    expressions = {pattern: compiled(pattern) for pattern in patterns}
    found: dict[str, list[str]] = {pattern: [] for pattern in patterns}
    groups.resolving.add(group_id)

    def turn(start: int) -> Result[None]:
        end = start + _TOPICS_IN_A_TURN // len(patterns) + 1
        for pattern, expression in expressions.items():
            matching = [name for name in names[start:end] if expression.fullmatch(name)]
            found[pattern] += [name for name in matching if may_describe(name)]
        if end < len(names):
            groups.timers.schedule(_key(group_id), 1, lambda: turn(end))
            return empty_result()
        groups.resolving.discard(group_id)
        return _apply(groups, group_id, found, version)

    groups.timers.schedule(_key(group_id), 1, lambda: turn(0))


def _apply(
    groups: ConsumerGroups, group_id: str, found: dict[str, list[str]], version: int
) -> Result[None]:
    """Write what patterns match; the group epoch rises where that has changed."""
    group = groups.find(group_id)
    if group is None:
        return empty_result()
    now_ms = groups.clock.now_ms()
    output: list[CoordinatorRecord] = []
    has_changed = False
    for pattern, topics in found.items():
        if not group.regex_counts.get(pattern):
            continue
        old = group.resolved.get(pattern)
        has_changed |= tuple(topics) != (old.topics if old else ())
        resolved = ResolvedRegex(tuple(topics), version, now_ms)
        output.append(records.regex(group_id, pattern, resolved))
    if has_changed:
        names = set(group.topic_counts).union(*found.values())
        new_hash = metadata_hash(groups, names)
        output.append(records.group_epoch(group_id, group.epoch + 1, new_hash))
    return Result(None, output) if output else empty_result()
