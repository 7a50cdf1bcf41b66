"""All metrics of a node, gathered on its loop a few series at a time, those of the loop among them.

Kafka: the MBeans of a broker and a controller; the plugin metrics of
org.apache.kafka.metadata.authorizer.StandardAuthorizer; the metrics of LogCleaner and
LogCleanerManager; SocketServer NetworkProcessorAvgIdlePercent and KafkaRequestHandlerPool
RequestHandlerAvgIdlePercent. One loop is network thread and request handler, so both figures are
equal: 1 minus the CPU share of the loop's thread.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.metrics import families
from ottla.metrics.families import (
    Kind,
    Series,
    bucket_labels,
    client_gauge,
    gauge,
    label_text,
    meter,
    own,
    quantile_labels,
)
from ottla.metrics.samples import QUANTILES, Buckets, Meter, Recent
from ottla.server.metrics.cluster import ClusterMetrics
from ottla.server.metrics.groups import CoordinatorMetrics, GroupMetrics, TransactionMetrics
from ottla.server.metrics.partitions import PartitionMetrics, share_series
from ottla.server.metrics.remote import remote_series
from ottla.server.metrics.requests import QuotaMetrics
from ottla.server.system.turns import BOUNDS_S

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.network.server import Listener
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.purgatory import Purgatory
    from ottla.purgatory.work import Work
    from ottla.security.authorizer import StandardAuthorizer
    from ottla.server.broker.broker import Broker
    from ottla.server.broker.log_cleaner import LogCleaner
    from ottla.server.controller.controller_node import ControllerNode
    from ottla.server.metrics.requests import RequestMetrics
    from ottla.server.system.environment import Stopwatch
    from ottla.server.system.turns import TurnWatch
    from ottla.storage.directories.log_dir import LogDirectory

BEAT_S = 0.25
"""Interval of the measurements; a longer one would miss short stalls."""
_BEATS_A_TICK = 20
_MINUTES_KEPT = 10

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
_SHARE_LABELS = tuple(families.label_text(quantile=str(share)) for share in _SHARES)
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
        yield Series(_TURN_QUANTILES, _SHARE_LABELS, [turns.quantile_s(share) for share in _SHARES])
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


_CLEANER = ("kafka.log", "LogCleaner")
_CHOICE = ("kafka.log", "LogCleanerManager")
_BUFFER = gauge(
    *_CLEANER,
    "max-buffer-utilization-percent",
    "How full the map of keys was in the last cleaning.",
)
_RECOPY = gauge(
    *_CLEANER, "cleaner-recopy-percent", "Bytes written of those read, in the last cleanings."
)
_TIME = gauge(*_CLEANER, "max-clean-time-secs", "How long the last cleaning took.")
_DELAY = gauge(
    *_CLEANER,
    "max-compaction-delay-secs",
    "How much longer than max.compaction.lag.ms a record has waited.",
)
_DEAD = gauge(*_CLEANER, "DeadThreadCount", "Cleaners ended by an unexpected error.")
_DIRTY = gauge(*_CHOICE, "max-dirty-percent", "The dirty share of the dirtiest log.")
_SINCE = gauge(
    *_CHOICE, "time-since-last-run-ms", "Time since a cleaner last searched for a log to clean."
)
_UNCLEANABLE = gauge(
    *_CHOICE, "uncleanable-partitions-count", "Partitions whose log cannot be cleaned."
)
_UNCLEANABLE_BYTES = gauge(*_CHOICE, "uncleanable-bytes", "Bytes in them that should be cleaned.")


def cleaner_series(cleaning: LogCleaner, directories: Sequence[LogDirectory]) -> Iterator[Series]:
    """Yield all series."""
    cleaner, figures = cleaning.cleaner, cleaning.figures()
    since_ms = max(cleaning.now_ms - cleaner.last_survey_ms, 0) if cleaner.last_survey_ms else 0
    yield Series(_BUFFER, _ONE, (figures.max_buffer_percent,))
    yield Series(_RECOPY, _ONE, (figures.recopy_percent,))
    yield Series(_TIME, _ONE, (figures.max_clean_s,))
    yield Series(_DELAY, _ONE, (cleaner.max_delay_ms // 1000,))
    yield Series(_DEAD, _ONE, (cleaning.dead_count,))
    yield Series(_DIRTY, _ONE, (int(100 * cleaner.max_ratio),))
    yield Series(_SINCE, _ONE, (since_ms,))
    labels = tuple(label_text(logDirectory=directory.path) for directory in directories)
    sizes = [cleaner.uncleanable_in(directory) for directory in directories]
    yield Series(_UNCLEANABLE, labels, [len(logs) for logs in sizes])
    yield Series(_UNCLEANABLE_BYTES, labels, [sum(logs) for logs in sizes])


_LABELS: Final = (
    label_text(config="authorizer.class.name", **{"class": "StandardAuthorizer"}, role="broker"),
)
_SECONDS: Final = 60
_ENTRIES = client_gauge("plugins", "acls-total-count", "Access control entries.")
_REQUESTS = client_gauge(
    "plugins", "authorization-request-rate-per-minute", "Decisions of the authorizer in a minute."
)
_ALLOWED = client_gauge(
    "plugins", "authorization-allowed-rate-per-minute", "Decisions to allow in a minute."
)
_DENIED = client_gauge(
    "plugins", "authorization-denied-rate-per-minute", "Decisions to deny in a minute."
)


class AuthorizationMetrics:
    """The metrics of one node's authorizer; used on the node's loop only."""

    def __init__(self, authorizer: StandardAuthorizer | None, *, now_s: float) -> None:
        self._authorizer = authorizer
        self._requests = Meter(now_s)
        self._denied = Meter(now_s)

    def tick(self, now_s: float) -> None:
        """Sample the counters."""
        authorizer = self._authorizer
        if authorizer is not None:
            self._requests.update(authorizer.decision_count, now_s)
            self._denied.update(authorizer.denied_count, now_s)

    def collect(self) -> Iterator[Series]:
        """Yield all series, none without an authorizer."""
        if self._authorizer is None:
            return
        requests, denied = (
            one.one_minute_rate * _SECONDS for one in (self._requests, self._denied)
        )
        yield Series(_ENTRIES, _LABELS, (len(self._authorizer),))
        yield Series(_REQUESTS, _LABELS, (requests,))
        yield Series(_ALLOWED, _LABELS, (max(requests - denied, 0.0),))
        yield Series(_DENIED, _LABELS, (denied,))


SERIES_AT_ONCE = 8
"""Series collected between two yields, or fewer where a source may be left."""
_ONE = ("",)

_DIRECTORIES_OFFLINE = gauge(
    "kafka.log", "LogManager", "OfflineLogDirectoryCount", "Log directories whose disk failed."
)
_DIRECTORY_OFFLINE = gauge("kafka.log", "LogManager", "LogDirectoryOffline", "1 if it failed.")
_DIRECTORIES_CORDONED = gauge(
    "kafka.log", "LogManager", "CordonedLogDirectoryCount", "Directories without new partitions."
)
_DIRECTORY_CORDONED = gauge(
    "kafka.log", "LogManager", "LogDirectoryCordoned", "1 if it takes no new partitions."
)
_MOVES = ("kafka.server", "ReplicaAlterLogDirsManager")
_MOVE_LAG = gauge(*_MOVES, "MaxLag", "The most records that a copy in another directory misses.")
_MOVES_FAILED = gauge(
    *_MOVES, "FailedPartitionsCount", "Moves between log directories that failed."
)
_DIRECTORY_FREE = own("ottla_log_directory_free_bytes", "Bytes left on the directory's disk.")
_DIRECTORY_RESERVE = own("ottla_log_directory_reserve_bytes", "Bytes of them kept from clients.")
_DIRECTORY_SHORT = own(
    "ottla_log_directory_short_of_space", "1 while less is left and produces are refused."
)
_KEPT_ENTRIES = own(
    "ottla_kept_for_clients_entries", "What a holder keeps by names that clients choose."
)
_KEPT = own("ottla_kept_for_clients_bytes", "Memory of what a holder keeps, estimated.")
_KEPT_BOUND = own("ottla_kept_for_clients_bound_bytes", "The most that a holder keeps.")
_REFUSED_FOR_SPACE = own(
    "ottla_produces_refused_for_space", "Appends refused for the reserve.", Kind.COUNTER
)
_PURGATORY = ("kafka.server", "DelayedOperationPurgatory")
_PURGATORY_SIZE = gauge(*_PURGATORY, "PurgatorySize", "Watched keys of waiting operations.")
_DELAYED = gauge(*_PURGATORY, "NumDelayedOperations", "Operations that wait.")
_SESSIONS = gauge(
    "kafka.server", "FetchSessionCache", "NumIncrementalFetchSessions", "Fetch sessions kept."
)
_SESSION_PARTITIONS = gauge(
    "kafka.server",
    "FetchSessionCache",
    "NumIncrementalFetchPartitionsCached",
    "Partitions in them.",
)
_REPLICATED_IN, _REPLICATED_OUT, _MOVED_IN, _MOVED_OUT = (
    meter("kafka.server", "BrokerTopicMetrics", name, text)
    for name, text in (
        ("ReplicationBytesInPerSec", "Bytes fetched from leaders."),
        ("ReplicationBytesOutPerSec", "Bytes sent to followers."),
        ("ReassignmentBytesInPerSec", "Of these for replicas that a reassignment adds here."),
        ("ReassignmentBytesOutPerSec", "Of these to replicas that a reassignment adds."),
    )
)
_CONNECTIONS = client_gauge("socket-server-metrics", "connection-count", "Open connections.")
_CONNECTIONS_NAME = _CONNECTIONS._replace(classic=_CONNECTIONS.reporter)
_ACCEPTED = own(
    "kafka_server_socket_server_metrics_connection_creation",
    "Connections accepted.",
    Kind.COUNTER,
)
_EXPIRES = own(
    "ottla_certificate_expires_timestamp_seconds",
    "When a listener's certificate expires, in seconds since 1970.",
    Kind.GAUGE,
)
_CLOSED = own(
    "kafka_server_socket_server_metrics_connection_close", "Connections closed.", Kind.COUNTER
)
_LARGE_CHECKED = own(
    "ottla_large_batches_checked", "Batches that workers checked, not the loop.", Kind.COUNTER
)
_LARGE_REFUSED = own(
    "ottla_large_batches_over_limits", "Large batches over the decompression limits.", Kind.COUNTER
)
_LARGE_WAITING = own("ottla_large_batches_waiting", "Batches that wait for a worker.")
_PRODUCERS = own("ottla_producer_states", "Idempotent producers remembered in all partitions.")
_PRODUCERS_REFUSED = own(
    "ottla_producer_states_refused",
    "Batches of new producers refused: more than producer.states.max.",
    Kind.COUNTER,
)
_SCRAPE = own("ottla_scrape_loop_seconds", "Loop time that the previous scrape took.")
_SCRAPES = own("ottla_scrapes", "Scrapes so far.", Kind.COUNTER)


class _MetricsPart(NamedTuple):
    """The series of one subsystem; None stands for what it does not need."""

    collect: Callable[[], Iterable[Series | None]]
    tick: Callable[[float], object] | None
    metadata_changed: Callable[[MetadataDelta, MetadataImage], object] | None


class NodeMetrics:
    """The metrics of one node; used on the node's loop only."""

    def __init__(
        self,
        broker: Broker,
        controller: ControllerNode,
        listeners: Sequence[Listener],
        loop: asyncio.AbstractEventLoop,
        *,
        level: str,
        requests: RequestMetrics,
        stopwatch: Stopwatch,
        turns: TurnWatch,
    ) -> None:
        now_s = stopwatch.elapsed_s()
        self.stopwatch = stopwatch
        self._broker = broker
        self._controller = controller
        self._listeners = listeners
        self._loop = loop
        self._parts: list[_MetricsPart] = []
        self._watch = LoopWatch(
            loop, self._tick, stopwatch=stopwatch, turns=turns, on_beat=requests.drain
        )
        self._add_parts(level, requests, now_s)
        self.last_scrape_s = 0.0
        """Seconds of the loop that the last scrape took."""
        self.last_scrape_cpu_s = 0.0
        """CPU seconds of it; fewer when the loop's thread waited for a core."""
        self._scrapes = 0

    def start(self) -> None:
        """Begin to measure the loop and to count changes of metadata."""
        self._controller.add_listener(self._metadata_changed)
        self._watch.start()

    def stop(self) -> None:
        """Stop measuring."""
        self._watch.stop()

    def _add_parts(self, level: str, requests: RequestMetrics, now_s: float) -> None:
        """Add all parts, in the order of their series."""
        broker, add = self._broker, self._add
        add(self._watch.collect)
        cluster = ClusterMetrics(broker.node_id, self._controller, broker.replication, now_s=now_s)
        add(cluster.collect, tick=cluster.tick, metadata_changed=cluster.metadata_changed)
        add(self._disks)
        add(lambda: cleaner_series(broker.log_cleaner, broker.logs.directories))
        add(self._network)
        add(lambda: remote_series(broker))
        add(self._limits)
        add(requests.collect)
        partitions = PartitionMetrics(broker.replicas, level=level, now_s=now_s)
        add(
            partitions.collect,
            tick=partitions.tick,
            metadata_changed=lambda _delta, _image: partitions.metadata_changed(),
        )
        groups = GroupMetrics(broker.groups, broker.replicas, broker.clock)
        add(
            groups.collect,
            tick=lambda _now_s: groups.tick(),
            metadata_changed=lambda _delta, _image: groups.metadata_changed(),
        )
        add(lambda: share_series(broker.share))
        for timed in (
            CoordinatorMetrics(broker, now_s=now_s),
            TransactionMetrics(broker, now_s=now_s),
            AuthorizationMetrics(broker.authorizer, now_s=now_s),
        ):
            add(timed.collect, tick=timed.tick)
        add(QuotaMetrics(broker.quotas, broker.clock).collect)

    def _add(
        self,
        collect: Callable[[], Iterable[Series | None]],
        *,
        tick: Callable[[float], object] | None = None,
        metadata_changed: Callable[[MetadataDelta, MetadataImage], object] | None = None,
    ) -> None:
        """Add the series of one subsystem; tick(now_s) samples its rates every five seconds."""
        self._parts.append(_MetricsPart(collect, tick, metadata_changed))

    def _metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for part in self._parts:
            if part.metadata_changed is not None:
                part.metadata_changed(delta, image)

    def _tick(self, now_s: float) -> None:
        for part in self._parts:
            if part.tick is not None:
                part.tick(now_s)

    def collect(self) -> Iterator[Series | None]:
        """Yield all series; the loop may take a turn between two of them."""
        for part in self._parts:
            yield from part.collect()
        yield Series(_SCRAPE, _ONE, (self.last_scrape_s,))
        yield Series(_SCRAPES, _ONE, (self._scrapes,))

    def _disks(self) -> Iterator[Series]:
        directories = self._broker.logs.directories
        failed = [int(not directory.is_online) for directory in directories]
        labels = tuple(label_text(logDirectory=directory.path) for directory in directories)
        yield Series(_DIRECTORIES_OFFLINE, _ONE, (sum(failed),))
        yield Series(_DIRECTORY_OFFLINE, labels, failed)
        cordoned = [int(directory.path in self._broker.logs.cordoned) for directory in directories]
        yield Series(_DIRECTORIES_CORDONED, _ONE, (sum(cordoned),))
        yield Series(_DIRECTORY_CORDONED, labels, cordoned)
        yield Series(_MOVE_LAG, _ONE, (self._broker.moves.max_lag,))
        yield Series(_MOVES_FAILED, _ONE, (self._broker.moves.failed_count,))
        yield Series(_DIRECTORY_FREE, labels, [directory.free_bytes for directory in directories])
        yield Series(
            _DIRECTORY_RESERVE, labels, [directory.reserve_bytes for directory in directories]
        )
        yield Series(
            _DIRECTORY_SHORT,
            labels,
            [int(directory.is_short_of_space) for directory in directories],
        )
        yield Series(_REFUSED_FOR_SPACE, _ONE, (self._broker.replicas.refused_for_space_count,))

    def _network(self) -> Iterator[Series]:
        broker = self._broker
        waiting: dict[str, Purgatory[Any]] = {
            "Fetch": broker.delayed_fetches,
            "ShareFetch": broker.share.fetches,
        }
        if (reader := broker.remote_reader) is not None:
            waiting |= {"RemoteFetch": reader.fetches, "RemoteListOffsets": reader.searches}
        names = tuple(label_text(delayedOperation=name) for name in waiting)
        yield Series(
            _PURGATORY_SIZE, names, [purgatory.watched_count for purgatory in waiting.values()]
        )
        yield Series(_DELAYED, names, [purgatory.delayed_count for purgatory in waiting.values()])
        yield Series(_SESSIONS, _ONE, (len(broker.fetch_sessions),))
        yield Series(_SESSION_PARTITIONS, _ONE, (broker.fetch_sessions.partition_count,))
        traffic = broker.replicas.traffic
        yield Series(_REPLICATED_IN, _ONE, (traffic.bytes_in,))
        yield Series(_REPLICATED_OUT, _ONE, (traffic.bytes_out,))
        yield Series(_MOVED_IN, _ONE, (traffic.moved_bytes_in,))
        yield Series(_MOVED_OUT, _ONE, (traffic.moved_bytes_out,))
        listeners = self._listeners
        labels = tuple(
            label_text(listener=listener.name, networkProcessor=0) for listener in listeners
        )
        open_now = [len(listener.connections) for listener in listeners]
        accepted = [listener.accepted_count for listener in listeners]
        closed = [a - b for a, b in zip(accepted, open_now, strict=True)]
        yield Series(_CONNECTIONS_NAME, labels, open_now)
        yield Series(_ACCEPTED, labels, accepted)
        yield Series(_CLOSED, labels, closed)
        expiries = [(listener.name, listener.certificate_expires_s) for listener in listeners]
        found = [(name, expires_s) for name, expires_s in expiries if expires_s is not None]
        of_listener = tuple(label_text(listener=name) for name, _ in found)
        yield Series(_EXPIRES, of_listener, [expires_s for _, expires_s in found])

    def _limits(self) -> Iterator[Series]:
        decompression = self._broker.decompression
        yield Series(_LARGE_CHECKED, _ONE, (decompression.checked_count,))
        yield Series(_LARGE_REFUSED, _ONE, (decompression.refused_count,))
        yield Series(_LARGE_WAITING, _ONE, (decompression.waiting_count,))
        producers = self._broker.logs.producers
        yield Series(_PRODUCERS, _ONE, (producers.count,))
        yield Series(_PRODUCERS_REFUSED, _ONE, (producers.refused_count,))
        kept = self._broker.ledger.kept()
        holders = tuple(label_text(holder=ledger.name) for ledger in kept)
        yield Series(_KEPT_ENTRIES, holders, [ledger.entries for ledger in kept])
        yield Series(_KEPT, holders, [ledger.used_bytes for ledger in kept])
        yield Series(_KEPT_BOUND, holders, [ledger.bound_bytes for ledger in kept])

    def gather(
        self, done: Callable[[list[Series]], None], failed: Callable[[Exception], None]
    ) -> None:
        """Gather in turns, then call done(series) or failed(error), all on the loop."""

        def finished(gathered: Pending[list[Series]]) -> None:
            if gathered.error is not None:
                failed(gathered.error)
            else:
                done(gathered.value)

        self._broker.worker.run(self._gather()).on_done(finished)

    def _gather(self) -> Work[list[Series]]:
        """Return all series, and record what they cost the loop."""
        stopwatch, source = self.stopwatch, self.collect()
        series: list[Series] = []
        loop_s = cpu_s = 0.0
        has_more = True
        while has_more:
            start_s, start_cpu_s = stopwatch.elapsed_s(), stopwatch.cpu_s()
            end = len(series) + SERIES_AT_ONCE
            has_more = False
            for item in source:
                if item is not None:
                    series.append(item)
                if item is None or len(series) == end:
                    has_more = True
                    break
            loop_s += stopwatch.elapsed_s() - start_s
            cpu_s += stopwatch.cpu_s() - start_cpu_s
            yield
        self._scrapes += 1
        self.last_scrape_cpu_s = cpu_s
        self.last_scrape_s = loop_s
        return series

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The node's loop."""
        return self._loop
