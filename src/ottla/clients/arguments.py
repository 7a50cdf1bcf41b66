"""Checks of what users pass: a wrong type is a TypeError at the call, not later in the loop.

Kafka: the types of its Java methods, which a compiler checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import ConfigError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
V = TypeVar("V")


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


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, in the order of the topics; raises TypeError."""
    topics: dict[str, list[int]] = {}
    for topic, partition in map(as_partition, partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def values_by_topic(values: Mapping[TopicPartition, V]) -> dict[str, dict[int, V]]:
    """Return values by topic and partition number, in the order of the topics."""
    topics: dict[str, dict[int, V]] = {}
    for partition, value in values.items():
        topic, number = as_partition(partition)
        topics.setdefault(topic, {})[number] = value
    return topics


def named_object(setting: str, name: str, kind: str = "class") -> Any:
    """Return what the dotted name in a setting leads to; raises ConfigError."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        text = f"{setting}: there is no Python {kind} {name!r} ({error})"
        raise ConfigError(text) from error


def check_topic(topic: Any) -> None:
    """Raise TypeError for a topic that is no str, ValueError for an empty one."""
    if isinstance(topic, Mapping):  # its values may be secrets
        text = "a topic must be str, not a mapping; settings are keywords, or config={...}"
        raise TypeError(text)
    if not isinstance(topic, str):
        raise TypeError(f"a topic must be str, not {type(topic).__name__}: {topic!r}")
    if not topic:
        raise ValueError("a topic must not be empty")


def topic_names(given: Any) -> list[str]:
    """Return a topic or several as a list of names; raises TypeError."""
    if isinstance(given, Mapping):
        check_topic(given)
    names: list[Any] = [given] if isinstance(given, (str, bytes)) else list(given or ())
    for name in names:
        check_topic(name)
    return names


def listed(what: str, given: Iterable[T]) -> Iterable[T]:
    """Return several things; raises TypeError for one str or bytes, which would be split."""
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{what} must be a list, not {type(given).__name__}: [{given!r}]")
    return given


def check_timeout(timeout: Any, *, may_be_none: bool = True) -> None:
    """Raise TypeError for a timeout that is no number of seconds."""
    if not isinstance(timeout, (int, float)) and not (may_be_none and timeout is None):
        raise TypeError(f"timeout must be a number of seconds, not {type(timeout).__name__}")


def check_poll(timeout: Any, max_records: Any) -> None:
    """Raise TypeError for wrong arguments of a poll."""
    if type(timeout) is not float or max_records is not None:
        check_timeout(timeout, may_be_none=False)
        check_int("max_records", 0 if max_records is None else max_records)


def check_int(what: str, given: Any) -> None:
    """Raise TypeError for a number that is no int."""
    if not isinstance(given, int):
        raise TypeError(f"{what} must be int, not {type(given).__name__}: {given!r}")


def check_callback(given: object) -> None:
    """Raise TypeError for an on_delivery that cannot be called."""
    if not callable(given):
        raise TypeError(f"on_delivery must be a function, not {type(given).__name__}")


def either(name: str, first: T | None, second: T | None) -> T | None:
    """Return the argument that was given under one of its two names; TypeError for both."""
    if first is not None and second is not None:
        raise TypeError(f"{name} is given twice, under two names")
    return second if first is None else first
