"""Checks of single values, with Kafka's messages about invalid ones.

Kafka: the Validator classes inside org.apache.kafka.common.config.ConfigDef. A check returns
None for a valid value, the reason otherwise. The reason is appended to "Invalid value x for
configuration y"; only a `ListCheck` returns a complete message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

MAX_PORT: Final = 65_535
"""The largest port of TCP."""


class Check(Protocol):
    """Decides whether a parsed value of the named setting is valid."""

    def reason(self, name: str, value: object) -> str | None:
        """Return why the value is invalid, None when it is valid."""


@dataclass(frozen=True, slots=True)
class Range:
    """A number with a minimum and optionally a maximum, both inclusive."""

    smallest: float
    largest: float | None = None

    def reason(self, _name: str, value: object) -> str | None:
        """Compare with both bounds; None is invalid."""
        if value is None:
            return "Value must be non-null"
        assert isinstance(value, int | float)
        if value < self.smallest:
            return f"Value must be at least {self.smallest}"
        if self.largest is not None and value > self.largest:
            return f"Value must be no more than {self.largest}"
        return None


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several words, compared exactly."""

    words: tuple[str, ...]

    def reason(self, _name: str, value: object) -> str | None:
        """Look the word up."""
        if value in self.words:
            return None
        return f"String must be one of: {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class OneOfAnyCase:
    """One of several words, compared without case."""

    words: tuple[str, ...]

    def reason(self, _name: str, value: object) -> str | None:
        """Look the word up without case."""
        if isinstance(value, str) and value.upper() in self.words:
            return None
        return f"String must be one of (case insensitive): {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """A text that is not empty; None is valid."""

    def reason(self, _name: str, value: object) -> str | None:
        """Refuse the empty text."""
        return "String must be non-empty" if value == "" else None


@dataclass(frozen=True, slots=True)
class ListCheck:
    """A list without duplicates or empty entries, of any words or of known ones only.

    Kafka has complete messages for these problems, so `reason` returns a complete message.
    """

    words: tuple[str, ...] = ()
    empty_allowed: bool = True
    null_allowed: bool = False

    def reason(self, name: str, value: object) -> str | None:
        """Return why the list is invalid, None when it is valid."""
        if value is None:
            return None if self.null_allowed else f"Configuration '{name}' values must not be null."
        entries = _entries(value)
        if not entries and not self.empty_allowed:
            valid = f"[{', '.join(self.words)}]" if self.words else "any non-empty value"
            return f"Configuration '{name}' must not be empty. Valid values include: {valid}"
        if len(set(entries)) != len(entries):
            return f"Configuration '{name}' values must not be duplicated."
        return next(filter(None, (self._entry_sentence(name, entry) for entry in entries)), None)

    def _entry_sentence(self, name: str, entry: str) -> str | None:
        if not entry:
            return f"Configuration '{name}' values must not be empty."
        if self.words and entry not in self.words:
            reason = f"String must be one of: {', '.join(self.words)}"
            return f"Invalid value {entry} for configuration {name}: {reason}"
        return None


@dataclass(frozen=True, slots=True)
class GzipLevel:
    """1 to 9, or -1 for zlib's default."""

    def reason(self, _name: str, value: object) -> str | None:
        """Allow the ten levels."""
        if isinstance(value, int) and (value == -1 or 1 <= value <= 9):
            return None
        return "Value must be between 1 and 9 or equal to -1"


_THROTTLED = re.compile(r"\d+:\d+")
_DURATION = re.compile(
    r"[+]?P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Replicas as partition:broker, or * alone."""

    def reason(self, name: str, value: object) -> str | None:
        """Check each pair."""
        entries = _entries(value)
        if entries == ("*",) or all(_THROTTLED.fullmatch(entry) for entry in entries):
            return None
        return (
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """A start position: earliest, latest, optionally none, or a duration ago (by_duration:PT1H)."""

    words: tuple[str, ...]
    ending: str

    def reason(self, name: str, value: object) -> str | None:
        """Check the word or the ISO 8601 duration."""
        if value in self.words:
            return None
        if isinstance(value, str) and value.startswith("by_duration:"):
            duration = value.removeprefix("by_duration:")
            if len(duration) <= 64 and _DURATION.fullmatch(duration):
                return None
        words = ", ".join(f"'{word}'" for word in self.words)
        return (
            f"Invalid value `{value}` for configuration {name}. The value must be either "
            f"{words} or of the format 'by_duration:{self.ending}'."
        )


@dataclass(frozen=True, slots=True)
class EitherOf:
    """One of two words."""

    words: tuple[str, str]
    any_case: bool

    def reason(self, name: str, value: object) -> str | None:
        """Look the word up."""
        word = value.lower() if isinstance(value, str) and self.any_case else value
        if word in self.words:
            return None
        first, second = self.words
        return (
            f"Invalid value `{value}` for configuration {name}. "
            f"The value must either be '{first}' or '{second}'."
        )


def _entries(value: object) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, tuple | list) else ()


def at_least(smallest: float) -> Range:
    """Allow this number and greater ones."""
    return Range(smallest)


def between(smallest: float, largest: float) -> Range:
    """Allow the numbers between both, inclusive."""
    return Range(smallest, largest)


def one_of(*words: str) -> OneOf:
    """Allow only these words."""
    return OneOf(words)


def one_of_any_case(*words: str) -> OneOfAnyCase:
    """Allow only these words, compared without case."""
    return OneOfAnyCase(words)


def entries_of(*words: str, empty_allowed: bool = True) -> ListCheck:
    """Allow lists of these words."""
    return ListCheck(words, empty_allowed=empty_allowed)


DISTINCT = ListCheck()
DISTINCT_NON_EMPTY = ListCheck(empty_allowed=False)
DISTINCT_OR_NULL = ListCheck(null_allowed=True)
DISTINCT_NON_EMPTY_OR_NULL = ListCheck(empty_allowed=False, null_allowed=True)
NON_EMPTY = NonEmpty()
GZIP_LEVEL = GzipLevel()
THROTTLED_REPLICAS = ThrottledReplicas()
CONSUMER_OFFSET_RESET = OffsetReset(("earliest", "latest", "none"), "<PnDTnHnMn.nS.>")
SHARE_OFFSET_RESET = OffsetReset(("earliest", "latest"), "<PnDTnHnMn.nS>")
ACKNOWLEDGEMENT_MODE = EitherOf(("implicit", "explicit"), any_case=False)
ACQUIRE_MODE = EitherOf(("batch_optimized", "record_limit"), any_case=True)
