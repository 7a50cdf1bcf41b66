"""Checks of what users pass: a wrong type is a TypeError at the call, not later in the loop.

Kafka: the types of its Java methods, which a compiler checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.types import TopicPartition


def as_partition(given: Any) -> TopicPartition:
    """Return a TopicPartition, also from a pair of a str and an int; raises TypeError."""
    if type(given) is TopicPartition:
        return given
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(
            f"a partition must be TopicPartition(topic, partition), not {type(given).__name__}: "
            f"{given!r}"
        )
    return TopicPartition(*given)


def check_topic(topic: Any) -> None:
    """Raise TypeError for a topic that is no str, ValueError for an empty one."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic must be str, not {type(topic).__name__}: {topic!r}")
    if not topic:
        raise ValueError("a topic must not be empty")


def topic_names(given: Any) -> list[str]:
    """Return a topic or several as a list of names; raises TypeError."""
    if isinstance(given, Mapping):
        raise TypeError("topics must be str, not a mapping: give settings as config={...}")
    names: list[Any] = [given] if isinstance(given, (str, bytes)) else list(given or ())
    for name in names:
        check_topic(name)
    return names
