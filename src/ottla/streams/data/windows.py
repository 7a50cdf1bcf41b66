"""Windows in time: their definitions, and a key with its window.

Kafka: org.apache.kafka.streams.kstream.{TimeWindows, SlidingWindows, SessionWindows, JoinWindows,
UnlimitedWindows, Window, Windowed, EmitStrategy}. All times are in milliseconds; durations may be
`timedelta`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

Duration = int | timedelta


def milliseconds(duration: Duration) -> int:
    """Return a duration as a whole number of milliseconds."""
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    return duration


class Window(NamedTuple):
    """A span of time; whether its end belongs to it depends on the kind of window."""

    start: int
    end: int


class Windowed(NamedTuple):
    """A key within a window."""

    key: Any
    window: Window


def _positive(duration: Duration, name: str) -> int:
    found = milliseconds(duration)
    if found <= 0:
        raise ValueError(f"{name} must be larger than zero, not {found} ms")
    return found


def _not_negative(duration: Duration, name: str) -> int:
    found = milliseconds(duration)
    if found < 0:
        raise ValueError(f"{name} must not be negative, not {found} ms")
    return found


@dataclass(frozen=True)
class TimeWindows:
    """Windows of one size that start at multiples of `advance_ms`."""

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        """Return tumbling windows that close with the stream time that passes their end."""
        return cls.of_size_and_grace(size, 0)

    @classmethod
    def of_size_and_grace(cls, size: Duration, grace: Duration) -> TimeWindows:
        """Return tumbling windows that take late records for a grace period."""
        size_ms = _positive(size, "size")
        return cls(size_ms, size_ms, _not_negative(grace, "grace"))

    def advance_by(self, advance: Duration) -> TimeWindows:
        """Return hopping windows, one starting after each advance."""
        advance_ms = _positive(advance, "advance")
        if advance_ms > self.size_ms:
            raise ValueError(f"advance must be at most the size {self.size_ms}, not {advance_ms}")
        return replace(self, advance_ms=advance_ms)

    def windows_for(self, timestamp: int) -> list[Window]:
        """Return the windows that a timestamp falls into, the earliest first."""
        first = max(0, timestamp - self.size_ms + self.advance_ms)
        first = first // self.advance_ms * self.advance_ms
        starts = range(first, timestamp + 1, self.advance_ms)
        return [Window(start, start + self.size_ms) for start in starts]


@dataclass(frozen=True)
class UnlimitedWindows:
    """One window from a start on."""

    start_ms: int = 0
    grace_ms: int = 0
    size_ms: int = 2**63 - 1

    @classmethod
    def of(cls) -> UnlimitedWindows:
        """Return the window that starts at 0."""
        return cls()

    def start_on(self, start_ms: int) -> UnlimitedWindows:
        """Return the window with another start."""
        return replace(self, start_ms=_not_negative(start_ms, "start"))

    def windows_for(self, timestamp: int) -> list[Window]:
        """Return the window if the timestamp is not before its start."""
        return [Window(self.start_ms, self.size_ms)] if timestamp >= self.start_ms else []


@dataclass(frozen=True)
class SlidingWindows:
    """Windows that hold records at most a time difference apart; both ends belong to them."""

    time_difference_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> SlidingWindows:
        """Return windows that take no late records."""
        return cls.of_time_difference_and_grace(difference, 0)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> SlidingWindows:
        """Return windows that take late records for a grace period."""
        difference_ms = _not_negative(difference, "time difference")
        return cls(difference_ms, _not_negative(grace, "grace"))


@dataclass(frozen=True)
class SessionWindows:
    """Sessions: records of a key with no longer pause than the inactivity gap."""

    gap_ms: int
    grace_ms: int

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, gap: Duration) -> SessionWindows:
        """Return sessions that take no late records."""
        return cls.of_inactivity_gap_and_grace(gap, 0)

    @classmethod
    def of_inactivity_gap_and_grace(cls, gap: Duration, grace: Duration) -> SessionWindows:
        """Return sessions that take late records for a grace period."""
        return cls(_positive(gap, "inactivity gap"), _not_negative(grace, "grace"))


@dataclass(frozen=True)
class JoinWindows:
    """How far before and after a record the other stream's records may be."""

    before_ms: int
    after_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> JoinWindows:
        """Return windows of the same extent on both sides."""
        return cls.of_time_difference_and_grace(difference, 0)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> JoinWindows:
        """Return windows that wait a grace period for late records."""
        found = _not_negative(difference, "time difference")
        return cls(found, found, _not_negative(grace, "grace"))

    def before(self, difference: Duration) -> JoinWindows:
        """Return the windows with another extent to the past."""
        return replace(self, before_ms=milliseconds(difference)).checked()

    def after(self, difference: Duration) -> JoinWindows:
        """Return the windows with another extent to the future."""
        return replace(self, after_ms=milliseconds(difference)).checked()

    def checked(self) -> JoinWindows:
        """Return self; ValueError where the window ends before it starts."""
        if self.before_ms + self.after_ms < 0:
            raise ValueError("Window interval (ie, before_ms + after_ms) must not be negative")
        return self

    def reversed(self) -> JoinWindows:
        """Return the windows as seen from the other stream."""
        return replace(self, before_ms=self.after_ms, after_ms=self.before_ms)

    @property
    def size_ms(self) -> int:
        """The whole extent."""
        return self.before_ms + self.after_ms


class EmitStrategy(NamedTuple):
    """When a windowed aggregation forwards results."""

    on_close: bool

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """Forward every update."""
        return cls(on_close=False)

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """Forward one result when stream time has passed end and grace."""
        return cls(on_close=True)
