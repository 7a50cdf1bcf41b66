"""Subscriptions by pattern: RE2 expressions, resolved to topics in slices between requests.

`coordinator.bounded_patterns` says what a match may cost, so that a turn of the loop is bounded for
any expression. Kafka resolves in a thread of its own, at most every ten seconds for a group.

Kafka: GroupMetadataManager.{maybeUpdateRegularExpressions, refreshRegularExpressions,
handleRegularExpressionsResult}, Utils.throwIfRegularExpressionIsInvalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import re2

from ottla.coordinator.bounded_patterns import MAX_COST, BoundedPattern
from ottla.coordinator.group.consumer.group import ResolvedRegex
from ottla.coordinator.group.slices import without_records
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
    from ottla.coordinator.group.consumer.kind import ConsumerGroups
    from ottla.coordinator.group.slices import Slices, Steps
    from ottla.coordinator.runtime import CoordinatorRecord

MIN_INTERVAL_MS: Final = 10_000
_COMPILATION_COST: Final = MAX_COST // 20
"""Of an expression of usual size."""
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


def compiled(pattern: str) -> BoundedPattern:
    """Return the compiled expression; INVALID_REGULAR_EXPRESSION for one that is refused."""
    try:
        return BoundedPattern(pattern)
    except re2.error as error:
        problem = error.args[0] if error.args else ""
        text = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: "
            f"{_description(text)}.",
        ) from error


def _description(problem: str) -> str:
    """Return the description of a problem by RE2/J, which Kafka uses."""
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
    """Apply a member's pattern: whether it has changed, and whether its topics are known already.

    Begins to resolve the group's patterns where they are new or no longer current, to the topics
    that the member's client may describe.
    """
    old, new = member.subscribed_regex or "", updated.subscribed_regex or ""
    has_changed = old != new
    is_resolved = False
    if has_changed:
        if old and group.regex_counts.get(old) == 1:
            output.append(groups.regex_tombstone(group.group_id, old))
        if new and not group.regex_counts.get(new):
            compiled(new)
        else:
            is_resolved = not new or new in group.resolved
    requested = {name for name in group.regex_counts if name != old or group.regex_counts[name] > 1}
    if new:
        requested.add(new)
    if requested and _is_due(groups, group, requested):
        resolution = _resolve(groups, group.group_id, sorted(requested), may_describe)
        groups.timers.write_all(_key(group.group_id), resolution)
    return has_changed, is_resolved


def _is_due(groups: ConsumerGroups, group: ConsumerGroup, requested: set[str]) -> bool:
    """Whether to resolve again; a time in the future is that of a clock that was ahead."""
    if _key(group.group_id) in groups.timers:
        return False  # they are being resolved
    known = [group.resolved[pattern] for pattern in requested if pattern in group.resolved]
    last_ms = max((resolved.timestamp_ms for resolved in known), default=0)
    now_ms = groups.clock.now_ms()
    if last_ms <= now_ms <= last_ms + MIN_INTERVAL_MS:
        return False
    interval_ms = groups.settings(group.group_id).regex_refresh_interval_ms
    return (
        len(known) < len(requested)
        or min(resolved.version for resolved in known) < groups.hashes.version
        or not last_ms <= now_ms <= last_ms + interval_ms
    )


def _key(group_id: str) -> Hashable:
    return "consumer-regex", group_id


def _resolve(
    groups: ConsumerGroups,
    group_id: str,
    patterns: list[str],
    may_describe: Callable[[str], bool],
) -> Slices[None]:
    """Find the topics of patterns in slices, then write them."""
    version = groups.hashes.version
    names = sorted(groups.topics.topic_names())
    matches = yield from without_records(_find(names, patterns, may_describe))
    yield _records(groups, group_id, matches, version)


def _find(
    names: list[str], patterns: list[str], may_describe: Callable[[str], bool]
) -> Steps[dict[str, list[str]]]:
    matches: dict[str, list[str]] = {}
    cost = 0
    for pattern in patterns:
        expression = compiled(pattern)
        cost += _COMPILATION_COST
        matches[pattern] = []
        for name in names:
            if expression.matches(name) and may_describe(name):
                matches[pattern].append(name)
            cost += expression.cost(name)
            if cost >= MAX_COST:
                cost = 0
                yield
    return matches


def _records(
    groups: ConsumerGroups, group_id: str, found: dict[str, list[str]], version: int
) -> list[CoordinatorRecord]:
    """Return the records of what patterns match; the group epoch rises where that has changed."""
    group = groups.find(group_id)
    if group is None:
        return []
    now_ms = groups.clock.now_ms()
    output: list[CoordinatorRecord] = []
    has_changed = False
    for pattern, topics in found.items():
        if not group.regex_counts.get(pattern):
            continue
        old = group.resolved.get(pattern)
        has_changed |= tuple(topics) != (old.topics if old else ())
        resolved = ResolvedRegex(tuple(topics), version, now_ms)
        output.append(groups.regex(group_id, pattern, resolved))
    if has_changed:
        names = set(group.topic_counts).union(*found.values())
        new_hash = groups.hashes.of(names)
        output.append(groups.group_epoch(group_id, group.epoch + 1, new_hash))
    return output
