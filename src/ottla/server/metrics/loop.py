"""Metrics of the event loop: its lag and its idle share.

A callback every BEAT_S seconds records its own delay and the CPU time of the loop's thread. It runs
only with the metrics endpoint.

Kafka: SocketServer NetworkProcessorAvgIdlePercent and KafkaRequestHandlerPool
RequestHandlerAvgIdlePercent. One loop is network thread and request handler, so both figures
are equal: 1 minus the CPU share of the loop's thread.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from ottla.metrics import families
from ottla.metrics.families import Kind, Series, bucket_labels, quantile_labels
from ottla.metrics.samples import QUANTILES, Buckets, Meter, Recent
from ottla.server.system.turns import BOUNDS_S

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from ottla.server.system.environment import Stopwatch
    from ottla.server.system.turns import TurnWatch

BEAT_S = 0.25
"""Interval of the measurements; a longer one would miss short stalls."""
_BEATS_A_TICK = 20
_MINUTES_KEPT = 10
_ONE = ("",)

_LAG = families.own(
    "ottla_loop_lag_seconds", "How late the event loop ran a timer.", Kind.HISTOGRAM
)
_RECENT_LAG = families.own(
    "ottla_loop_lag_recent_seconds", "The same over the last ten minutes.", Kind.SUMMARY
)
_NETWORK_IDLE = families.gauge(
    "kafka_network",
    "SocketServer",
    "NetworkProcessorAvgIdlePercent",
    "Share of the last minute in which the event loop's thread used no CPU, 0 to 1.",
)
_HANDLER_IDLE = families.Family(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "",
    Kind.GAUGE,
    "The same figure: one loop is network thread and request handler in one.",
)
_HANDLER_IDLE_NS = families.Family(
    "",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
    Kind.COUNTER,
    "Nanoseconds in which the event loop's thread used no CPU: the reporter shows the count.",
)
_TURNS = families.own(
    "ottla_loop_turn_seconds", "Duration of the event loop's turns.", Kind.HISTOGRAM
)
_TURN_QUANTILES = families.own(
    "ottla_loop_turn_quantile_seconds", "Upper bound of this share of all turns since the start."
)
_SLOWEST_TURN = families.own(
    "ottla_loop_turn_max_seconds", "The slowest turn of the last five to ten minutes."
)
_SHARES = (0.5, 0.99)
_SHARE_LABELS = tuple(families.label_text(quantile=str(one)) for one in _SHARES)
_BUCKET_LABELS = bucket_labels(BOUNDS_S)
_RECENT_LABELS = quantile_labels(QUANTILES)


class LoopWatch:
    """Measures between `start` and `stop`; calls on_beat each time, on_tick every five seconds."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_tick: Callable[[float], None],
        *,
        stopwatch: Stopwatch,
        turns: TurnWatch,
        on_beat: Callable[[], None],
    ) -> None:
        self._stopwatch = stopwatch
        self._turns = turns
        self._loop = loop
        self._on_beat = on_beat
        self._on_tick = on_tick
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._beats = 0
        self._lag = Buckets(BOUNDS_S)
        self._recent = Recent(int(_MINUTES_KEPT * 60 / BEAT_S))
        self._start_s = 0.0
        self._start_cpu_s = 0.0
        self._idle: Meter | None = None

    def start(self) -> None:
        """Begin to measure; called on the loop's thread."""
        self._start_s = self._stopwatch.elapsed_s()
        self._start_cpu_s = self._stopwatch.cpu_s()
        self._idle = Meter(self._start_s)
        self._schedule()

    def stop(self) -> None:
        """Stop measuring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _schedule(self) -> None:
        self._due_s = self._stopwatch.elapsed_s() + BEAT_S
        self._handle = self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        now_s = self._stopwatch.elapsed_s()
        late_s = max(0.0, now_s - self._due_s)
        self._lag.add(late_s)
        self._recent.add(late_s)
        self._beats += 1
        self._on_beat()
        if self._beats % _BEATS_A_TICK == 0:
            assert self._idle is not None
            self._idle.update(self.idle_s(now_s), now_s)
            self._on_tick(now_s)
        self._schedule()

    def _turn_series(self) -> Iterator[Series]:
        turns = self._turns
        counts = tuple(accumulate(turns.counts))
        yield Series(_TURNS, _BUCKET_LABELS, (*counts, turns.total_s, counts[-1]))
        yield Series(_TURN_QUANTILES, _SHARE_LABELS, [turns.quantile_s(one) for one in _SHARES])
        slowest = turns.slowest
        label = families.label_text(callback=slowest.name)
        yield Series(_SLOWEST_TURN, (label,), (slowest.duration_s,))

    def idle_s(self, now_s: float) -> float:
        """Seconds since the start without CPU use of the loop's thread; on that thread only."""
        busy_s = self._stopwatch.cpu_s() - self._start_cpu_s
        return max(0.0, now_s - self._start_s - busy_s)

    def _idle_share(self, now_s: float) -> float:
        """Return the idle share of the last minute; before the first tick, that since the start."""
        assert self._idle is not None, "start first"
        if self._beats >= _BEATS_A_TICK:
            return min(1.0, self._idle.one_minute_rate)
        elapsed_s = now_s - self._start_s
        return min(1.0, self.idle_s(now_s) / elapsed_s) if elapsed_s > 0 else 1.0

    def collect(self) -> Iterator[Series]:
        """Yield lag and idle shares; on the loop's thread."""
        now_s = self._stopwatch.elapsed_s()
        counts = self._lag.cumulative()
        yield Series(_LAG, _BUCKET_LABELS, (*counts, self._lag.total, counts[-1]))
        recent = self._recent
        values = (*recent.quantiles(), recent.total, recent.count)
        yield Series(_RECENT_LAG, _RECENT_LABELS, values)
        yield from self._turn_series()
        share = self._idle_share(now_s)
        yield Series(_NETWORK_IDLE, _ONE, (share,))
        yield Series(_HANDLER_IDLE, _ONE, (share,))
        yield Series(_HANDLER_IDLE_NS, _ONE, (int(self.idle_s(now_s) * 1e9),))
