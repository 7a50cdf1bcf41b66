"""Topics by pattern: what a source may match, and how Spark's source subscribes.

Kafka: processor.internals.InternalTopologyBuilder (addSource with a Pattern, sourceTopicPattern).
A pattern matches whole names, as `re.fullmatch` does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.streams.errors import TopologyException

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FLAGS: Final = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_GIVEN_WITHIN: Final = re.compile(r"(\(\?[aimsux]+\))+")
_BACKREFERENCE: Final = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")


class TopicSource(Protocol):
    """What a source node is here."""

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None


SourceT = TypeVar("SourceT", bound=TopicSource)


def check_pattern(pattern: re.Pattern[str]) -> None:
    """Raise TypeError for a pattern of bytes, TopologyException for one with backreferences."""
    if not isinstance(pattern.pattern, str):
        raise TypeError(f"a pattern of topics is text, not {pattern.pattern!r}")
    if _BACKREFERENCE.search(pattern.pattern):  # the subscription joins patterns: groups move
        raise TopologyException(f"Pattern {pattern.pattern} has a backreference.")


def same_pattern(pattern: re.Pattern[str]) -> tuple[str, int]:
    """Return what two patterns have in common that are one subscription."""
    return pattern.pattern, pattern.flags


def check_no_overlap(pattern: re.Pattern[str], sources: Iterable[TopicSource]) -> None:
    """Raise TopologyException for a pattern that matches a topic which another source names.

    A topic that two patterns match is found where it is read, as in Kafka.
    """
    if any(pattern.fullmatch(topic) for source in sources for topic in source.topics):
        raise TopologyException(
            f"Pattern {pattern.pattern} will match a topic that has already been registered by "
            "another source."
        )


def matching(topic: str, sources: Sequence[SourceT]) -> SourceT | None:
    """Return the source whose pattern matches a topic; TopologyException for several."""
    found = [one for one in sources if one.pattern is not None and one.pattern.fullmatch(topic)]
    if len(found) > 1:
        first, second = (one.pattern.pattern for one in found[:2] if one.pattern is not None)
        raise TopologyException(
            f"Topic {topic} is already matched for another regex pattern {first} and hence cannot "
            f"be matched to this regex pattern {second} any more."
        )
    return found[0] if found else None


def subscription(names: Iterable[str], patterns: Iterable[re.Pattern[str]]) -> str:
    """Return one pattern, as text, of names and patterns; TopologyException if there is none."""
    text = "|".join([*map(re.escape, names), *map(as_text, patterns)])
    try:
        re.compile(text)
    except re.error as error:  # two groups of one name
        raise TopologyException(f"the patterns cannot be joined: {error}") from error
    return text


def as_text(pattern: re.Pattern[str]) -> str:
    """Return a pattern as text with its flags, to be a part of another one."""
    flags = "".join(letter for letter, flag in _FLAGS.items() if pattern.flags & flag)
    within = _GIVEN_WITHIN.match(pattern.pattern)
    text = pattern.pattern[within.end() :] if within else pattern.pattern
    if pattern.flags & re.VERBOSE:  # its last line may be a comment
        return f"(?x{flags}:{text}\n)"
    return f"(?{flags}:{text})"
