"""What a worker measures: its starts, its rebalances and its tasks.

A task records once a batch, on its thread; beans are made when they are read.

Kafka: WorkerMetricsGroup, TaskMetricsGroup, SourceTaskMetricsGroup, SinkTaskMetricsGroup and
ErrorHandlingMetrics of org.apache.kafka.connect.runtime; DistributedHerder.RebalanceMetrics.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Final

from ottla.connect.metrics import DOMAIN, MBean, valid_bean
from ottla.connect.runtime.state import ConnectorTaskId, RunState
from ottla.metrics.sampled_stat import SampledStat, SampleWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.connect.runtime.tolerance import ErrorCounts

log = logging.getLogger("ottla.connect")
WINDOW: Final = SampleWindow(2, 30_000)
"""The defaults of metrics.num.samples and metrics.sample.window.ms."""


class WindowedValue(SampledStat):
    """Average and extremes of a window; NaN without values, as in Kafka."""

    __slots__ = ()

    def average(self, now_ms: int) -> float:
        """Return the average."""
        samples = self.recorded(now_ms)
        count = sum(it.count for it in samples)
        return sum(it.total for it in samples) / count if count else math.nan

    def highest(self, now_ms: int) -> float:
        """Return the highest value."""
        return max((it.highest for it in self.recorded(now_ms)), default=math.nan)

    def lowest(self, now_ms: int) -> float:
        """Return the lowest value."""
        return min((it.lowest for it in self.recorded(now_ms)), default=math.nan)

    def share(self, now_ms: int, of: bool) -> float:  # noqa: FBT001 - success or failure
        """Return the share of ones or of zeros, 0 without values."""
        average = self.average(now_ms)
        if math.isnan(average):
            return 0.0
        return average if of else 1 - average


def monotonic_ms() -> int:
    """Return the time that windows are of."""
    return time.monotonic_ns() // 1_000_000


class TaskMetrics:
    """The metrics of a task; the methods are called from its thread, but `beans`."""

    def __init__(self, window: SampleWindow = WINDOW) -> None:
        self._lock = threading.Lock()
        self._window = window
        self._stats: dict[str, WindowedValue] = {}
        self._times_ms = dict.fromkeys(RunState, 0)
        self._state, self._since_ms = RunState.UNASSIGNED, monotonic_ms()
        self._active = self.commits = 0
        self.texts: Mapping[str, str] = {}
        """Classes and versions of connector, task and converters."""
        self.errors: ErrorCounts | None = None
        self.partition_count: Callable[[], int] | None = None
        """Of a sink's task."""
        self.own: Callable[[], Sequence[MBean]] = tuple
        """The beans of the task itself."""

    def _record(self, now_ms: int, **values: float) -> None:
        for name, value in values.items():
            stat = self._stats.get(name)
            if stat is None:
                stat = self._stats[name] = WindowedValue(self._window)
            stat.record(value, now_ms)

    def changed(self, state: RunState) -> None:
        """Take the state of the task."""
        with self._lock:
            now_ms = monotonic_ms()
            self._times_ms[self._state] += now_ms - self._since_ms
            self._state, self._since_ms = state, now_ms

    def polled(self, count: int, elapsed_s: float) -> None:
        """Take the size and time of a source's batch."""
        with self._lock:
            self._active += count
            self._record(
                monotonic_ms(),
                batch=count,
                polled=count,
                poll_ms=elapsed_s * 1000,
                active=self._active,
            )

    def wrote(self, count: int, dropped: int) -> None:
        """Take records of a source that were acknowledged, or dropped."""
        with self._lock:
            self._active = max(0, self._active - count)
            self._record(monotonic_ms(), written=count - dropped, active=self._active)

    def read(self, count: int) -> None:
        """Take the number of records that a sink's consumer has returned."""
        with self._lock:
            self._record(monotonic_ms(), read=count)

    def put(self, count: int, elapsed_s: float) -> None:
        """Take the size and time of a sink's batch."""
        with self._lock:
            self._record(monotonic_ms(), batch=count, sent=count, put_ms=elapsed_s * 1000)

    def lags(self, active: int) -> None:
        """Take the number of records that a sink has and did not commit."""
        with self._lock:
            self._active = active
            self._record(monotonic_ms(), active=active)

    def committed(self, elapsed_s: float, *, is_success: bool) -> None:
        """Take the time and outcome of a commit of offsets."""
        with self._lock:
            self.commits += 1
            now_ms = monotonic_ms()
            self._record(now_ms, commit_success=float(is_success))
            if is_success:
                self._record(now_ms, commit_ms=elapsed_s * 1000, completed=1)

    # ------------------------------------------------------------ beans

    def beans(self, task: ConnectorTaskId, status: str) -> list[MBean]:
        """Return the beans of the task and its own, from any thread."""
        tags = {"connector": task.connector, "task": str(task.task)}
        with self._lock:
            now_ms = monotonic_ms()
            kinds = {"connector-task-metrics": {"status": status, **self._task(now_ms)}}
            if self.partition_count is not None:
                kinds["sink-task-metrics"] = self._sink(now_ms, self.partition_count())
            elif self.texts.get("connector-type") == "source":
                kinds["source-task-metrics"] = self._source(now_ms)
        if self.errors is not None:
            kinds["task-error-metrics"] = self.errors.attributes()
        beans = [MBean(DOMAIN, kind, tags, it) for kind, it in kinds.items()]
        try:
            own = map(valid_bean, self.own())
            beans += [it for it in own if it is not None and it.domain != DOMAIN]
        except Exception:
            log.exception("%s: the task's own metrics cannot be read", task)
        return beans

    def _stat(self, name: str) -> WindowedValue:
        return self._stats.get(name) or WindowedValue(self._window)

    def _rate(self, name: str, prefix: str, now_ms: int) -> dict[str, float | str]:
        stat = self._stat(name)
        return {f"{prefix}-rate": stat.rate(now_ms), f"{prefix}-total": stat.total}

    def _ratio(self, state: RunState, now_ms: int) -> float:
        elapsed_ms = now_ms - self._since_ms
        total_ms = sum(self._times_ms.values()) + elapsed_ms
        own_ms = self._times_ms[state] + (elapsed_ms if state is self._state else 0)
        return own_ms / total_ms if total_ms else 0.0

    def _task(self, now_ms: int) -> dict[str, float | str]:
        batch, commit = self._stat("batch"), self._stat("commit_ms")
        success = self._stat("commit_success")
        return {
            "running-ratio": self._ratio(RunState.RUNNING, now_ms),
            "pause-ratio": self._ratio(RunState.PAUSED, now_ms),
            "batch-size-max": batch.highest(now_ms),
            "batch-size-avg": batch.average(now_ms),
            "offset-commit-max-time-ms": commit.highest(now_ms),
            "offset-commit-avg-time-ms": commit.average(now_ms),
            "offset-commit-success-percentage": success.share(now_ms, True),
            "offset-commit-failure-percentage": success.share(now_ms, False),
            **self.texts,
        }

    def _activity(self, prefix: str, now_ms: int) -> dict[str, float | str]:
        active = self._stat("active")
        return {
            f"{prefix}-record-active-count": self._active,
            f"{prefix}-record-active-count-max": active.highest(now_ms),
            f"{prefix}-record-active-count-avg": active.average(now_ms),
        }

    def _source(self, now_ms: int) -> dict[str, float | str]:
        poll = self._stat("poll_ms")
        return {
            **self._rate("polled", "source-record-poll", now_ms),
            **self._rate("written", "source-record-write", now_ms),
            **self._activity("source", now_ms),
            "poll-batch-max-time-ms": poll.highest(now_ms),
            "poll-batch-avg-time-ms": poll.average(now_ms),
        }

    def _sink(self, now_ms: int, partition_count: int) -> dict[str, float | str]:
        put = self._stat("put_ms")
        return {
            **self._rate("read", "sink-record-read", now_ms),
            **self._rate("sent", "sink-record-send", now_ms),
            **self._activity("sink", now_ms),
            "partition-count": partition_count,
            "offset-commit-seq-no": self.commits,
            **self._rate("completed", "offset-commit-completion", now_ms),
            # a commit is waited for here, so that no answer comes out of order
            "offset-commit-skip-rate": 0.0,
            "offset-commit-skip-total": 0.0,
            "put-batch-max-time-ms": put.highest(now_ms),
            "put-batch-avg-time-ms": put.average(now_ms),
        }


class ReportedMetrics(TaskMetrics):
    """The metrics of a task in another process, as that has last sent them; at least its status."""

    def __init__(self, reported: Sequence[MBean] = ()) -> None:
        super().__init__()
        self._reported = reported

    def beans(self, task: ConnectorTaskId, status: str) -> list[MBean]:
        """Return the beans; the worker's are of this task, whatever tags they came with."""
        tags = {"connector": task.connector, "task": str(task.task)}
        kinds: dict[str, Mapping[str, float | str]] = {
            it.type: it.attributes
            for it in self._reported
            if it.domain == DOMAIN and it.type in _TASK_TYPES
        }
        kinds["connector-task-metrics"] = {
            **kinds.get("connector-task-metrics", {}),
            "status": status,
        }
        beans = [MBean(DOMAIN, kind, tags, it) for kind, it in kinds.items()]
        return beans + [it for it in self._reported if it.domain != DOMAIN]


UNMEASURED: Final = ReportedMetrics()
_TASK_TYPES: Final = frozenset(
    ("connector-task-metrics", "source-task-metrics", "sink-task-metrics", "task-error-metrics")
)


class StartMetrics:
    """Starts of connectors and tasks, by their first state."""

    def __init__(self) -> None:
        self._outcomes = {kind: WindowedValue(WINDOW) for kind in ("connector", "task")}
        self._starting: set[ConnectorTaskId | str] = set()

    def begin(self, of: ConnectorTaskId | str) -> None:
        """Wait for the first state of a connector or task."""
        self._starting.add(of)

    def reported(self, of: ConnectorTaskId | str, state: RunState) -> None:
        """Take a state."""
        if of in self._starting:
            self._starting.discard(of)
            kind = "task" if isinstance(of, ConnectorTaskId) else "connector"
            self._outcomes[kind].record(float(state is not RunState.FAILED), monotonic_ms())

    def attributes(self) -> dict[str, float | str]:
        """Return attempts, successes and failures."""
        now_ms = monotonic_ms()
        made: dict[str, float | str] = {}
        for kind, stat in self._outcomes.items():
            made |= {
                f"{kind}-startup-attempts-total": stat.count,
                f"{kind}-startup-success-total": stat.total,
                f"{kind}-startup-failure-total": stat.count - stat.total,
                f"{kind}-startup-success-percentage": stat.share(now_ms, True),
                f"{kind}-startup-failure-percentage": stat.share(now_ms, False),
            }
        return made


_COUNTED: Final = ("running", "paused", "failed", "unassigned", "destroyed", "restarting")


def task_counts(connector: str, states: Iterable[RunState]) -> MBean:
    """Return the tasks of a connector at this worker, by state."""
    names = [it.value.lower() for it in states]
    counts = {f"connector-{it}-task-count": names.count(it) for it in _COUNTED}
    tags = {"connector": connector}
    attributes = {"connector-total-task-count": len(names), **counts}
    return MBean(DOMAIN, "connect-worker-metrics", tags, attributes)


class RebalanceMetrics:
    """Rebalances of a worker's group, as it takes part in them."""

    def __init__(self) -> None:
        self._times = WindowedValue(WINDOW)
        self._start_ms: int | None = None
        self._end_ms: int | None = None

    def started(self) -> None:
        """Take the beginning of a rebalance."""
        if self._start_ms is None:
            self._start_ms = monotonic_ms()

    def completed(self) -> None:
        """Take its end, an assignment."""
        now_ms = monotonic_ms()
        if self._start_ms is not None:
            self._times.record(now_ms - self._start_ms, now_ms)
        self._start_ms, self._end_ms = None, now_ms

    def bean(self, protocol: str, leader: str, epoch: int) -> MBean:
        """Return the bean of the worker in its generation."""
        now_ms = monotonic_ms()
        since_ms = math.inf if self._end_ms is None else now_ms - self._end_ms
        attributes: dict[str, float | str] = {
            "connect-protocol": protocol,
            "leader-name": leader,
            "epoch": epoch,
            "completed-rebalances-total": self._times.count,
            "rebalancing": float(self._start_ms is not None),
            "rebalance-max-time-ms": self._times.highest(now_ms),
            "rebalance-avg-time-ms": self._times.average(now_ms),
            "time-since-last-rebalance-ms": since_ms,
        }
        return MBean(DOMAIN, "connect-worker-rebalance-metrics", {}, attributes)
