"""Throttle times held against those that Kafka's own classes compute for the same events."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ottla.metrics.sampled_stat import SampledStat, SampleWindow
from ottla.quota.rates import TokenBucket, over_rate_ms, overdrawn_ms
from tests.conformance.kafka import HERE

if TYPE_CHECKING:
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
START_MS = 1_700_000_000_000
SERIES, EVENTS = 400, 40


class Series(NamedTuple):
    """Events against one quota."""

    kind: str
    window: SampleWindow
    limit: float
    events: list[tuple[float, int]]

    def line(self) -> str:
        """Write the series as the Java program reads it."""
        events = " ".join(f"{value!r}@{at_ms}" for value, at_ms in self.events)
        samples, sample_ms = self.window
        return f"{self.kind} {samples} {sample_ms} {self.limit!r} {events}"


def test_rates_and_buckets_throttle_as_kafkas(kafka: Kafka) -> None:
    """Random series of both kinds: each event gets the same pause to the millisecond."""
    chance = random.Random(13)
    series = [_series(chance, kind) for kind in ("rate", "bucket") for _ in range(SERIES)]
    classes = kafka.compile(HERE / "java" / "QuotaFigures.java")
    lines = "\n".join(one.line() for one in series)
    theirs = kafka.run("QuotaFigures", classes=classes, stdin=lines).stdout.splitlines()
    ours = [" ".join(map(str, _pauses(one))) for one in series]
    assert ours == theirs
    assert sum(pause != "0" for line in theirs for pause in line.split()) > SERIES


def _series(chance: random.Random, kind: str) -> Series:
    window = SampleWindow(chance.choice((1, 2, 3, 11, 36)), chance.choice((1000, 2000, 5000)))
    limit = chance.choice((0.5, 2.0, 10.0, 1000.0, 1_048_576.0))
    steps_ms = chance.choice((3, 300, 3000, 30_000))
    at_ms, events = START_MS, []
    for _ in range(EVENTS):
        at_ms += chance.randrange(steps_ms)
        events.append((round(limit * chance.expovariate(1) * steps_ms / 1000, 3), at_ms))
    return Series(kind, window, limit, events)


def _pauses(series: Series) -> list[int]:
    return (_rate_pauses if series.kind == "rate" else _bucket_pauses)(series)


def _rate_pauses(series: Series) -> list[int]:
    rate, limit, pauses = SampledStat(series.window), series.limit, []
    for value, at_ms in series.events:
        rate.record(value, at_ms)
        measured, window_ms = rate.rate(at_ms), rate.window_ms(at_ms)
        pauses.append(over_rate_ms(measured, limit, window_ms) if measured > limit else 0)
    return pauses


def _bucket_pauses(series: Series) -> list[int]:
    bucket, limit, pauses = TokenBucket(series.window), series.limit, []
    for value, at_ms in series.events:
        bucket.take(value, limit, at_ms)
        tokens = bucket.measure(limit, at_ms)
        pauses.append(overdrawn_ms(tokens, limit) if tokens < 0 else 0)
    return pauses
