"""Replication on one broker: fetchers for each leader, and changes of the in-sync sets.

A leader has num.replica.fetchers fetchers, each with its own connection. A hash of the partition's
name selects the fetcher, as in Kafka.

Kafka: kafka.server.{AbstractFetcherManager, ReplicaManager, RemoteLeaderEndPoint}.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.runtime.java_hash import java_index, string_hash
from ottla.network.request_channel import FlatRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.fetch_values import FetchValues
from ottla.protocol.follower_fetch import (
    LOWEST_VERSION,
    read_fetch_response,
    write_fetch_request,
)
from ottla.protocol.schema import Versions
from ottla.replication.fetcher import FetcherSettings, ReplicaFetcher
from ottla.replication.isr_updates import IsrUpdates
from ottla.server.broker.directory_assignments import DirectoryAssignments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.config.broker import BrokerConfig
    from ottla.network.node_channel import NodeChannel
    from ottla.protocol.fetch_values import FetchAnswer
    from ottla.protocol.schema import Request
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.timing_wheel import TimerTask
    from ottla.purgatory.work import Work
    from ottla.replication.fetcher import FollowerLimit
    from ottla.replication.log_copy import Cut
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.controller.channel import ControllerChannel
    from ottla.server.system.environment import RunOnVolume
    from ottla.types import TopicPartition

log = logging.getLogger("ottla.replication")
TRUNCATIONS_AT_ONCE: Final = 20
"""Logs that are truncated in one turn: some milliseconds."""
TRUNCATION_MS: Final = 5
"""Time budget of one turn: a truncation may read a producer snapshot."""


class RegisteredBrokers:
    """Implements `BrokerEpochs` over the committed metadata."""

    def __init__(self, metadata: BrokerMetadata, broker_epoch: Callable[[], int]) -> None:
        self._brokers = metadata.image.cluster
        self._broker_epoch = broker_epoch

    @property
    def broker_epoch(self) -> int:
        """This broker's epoch."""
        return self._broker_epoch()

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker is neither fenced nor shutting down, and of this incarnation."""
        known = self._brokers.brokers.get(broker_id)
        return known is not None and known.is_active and broker_epoch in (-1, known.broker_epoch)

    def is_unfenced(self, broker_id: int) -> bool:
        """Whether a broker is not fenced; it may be shutting down."""
        known = self._brokers.brokers.get(broker_id)
        return known is not None and not known.fenced

    def is_stale(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a later incarnation of the broker is known."""
        known = self._brokers.brokers.get(broker_id)
        return known is not None and known.broker_epoch > broker_epoch


class Replication:
    """Drives the fetchers: sends their requests, passes on the responses, polls them when due."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        replicas: ReplicaSet,
        *,
        broker_epoch: Callable[[], int],
        controller: ControllerChannel,
        new_nodes: Callable[[int], NodeChannel],
        loop: Loop,
        limit: FollowerLimit,
        run_on_volume: RunOnVolume,
    ) -> None:
        """Take the active controller's channel; new_nodes(number) makes a fetcher's channel."""
        config = metadata.config
        self._metadata = metadata
        self._replicas = replicas
        self._new_nodes = new_nodes
        self._nodes: list[NodeChannel] = []
        """The connections to other brokers, by the number of a fetcher."""
        self._fetcher_count: int = config.num_replica_fetchers
        self._loop = loop
        self._clock = loop.clock
        self._timer = loop.timer
        self._limit = limit
        self._run_on_volume = run_on_volume
        self._listener = config.inter_broker_endpoint_name
        self._timeout_ms: int = config.replica_socket_timeout_ms
        self._check_interval_ms = max(config.replica_lag_time_max_ms // 2, 1)
        self._settings = FetcherSettings(
            config.replica_fetch_max_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_min_bytes,
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_backoff_ms,
        )
        self._brokers = RegisteredBrokers(metadata, broker_epoch)
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        """By the leader and the number of the fetcher."""
        self._leaders: dict[Partition, ReplicaFetcher] = {}
        self._changed: dict[ReplicaFetcher, None] = {}
        self._tasks: dict[ReplicaFetcher, TimerTask] = {}
        self._is_closed = False
        self.build_remote_state: Callable[[Partition, int, int, int], Work[Cut]] | None = None
        """Builds what a log needs behind the records that remote storage alone has, from the
        leader, its epoch and its log's start; None without remote storage."""
        replicas.environment = IsrUpdates(
            config.node_id,
            max_lag_ms=config.replica_lag_time_max_ms,
            brokers=self._brokers,
            send=controller.send,
            retry_later=self._call_later,
            high_watermark_moved=replicas.high_watermark_moved,
        )
        self.directories = DirectoryAssignments(
            config.node_id,
            metadata.image,
            broker_epoch=broker_epoch,
            send=controller.send,
            call_later=self._call_later,
        )

    def start(self) -> None:
        """Begin to check for followers that lag."""
        self._check_lag(0)

    def _check_lag(self, _now_ms: int) -> None:
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        self._timer.add(now_ms + self._check_interval_ms, self._check_lag)
        self._loop.worker.run(self._replicas.check_lag(now_ms), "check of lag")

    def _call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        def call(_now_ms: int) -> None:
            if not self._is_closed:
                callback()

        self._timer.add(self._clock.monotonic_ms() + delay_ms, call)

    @property
    def max_lag(self) -> int:
        """The largest lag of a log behind its leader's high watermark, in records."""
        return max(
            (lag for fetcher in self._fetchers.values() for lag in fetcher.lags.values()), default=0
        )

    def follow(self, partition: Partition, leader_id: int, leader_epoch: int) -> None:
        """Replicate a partition from its leader (-1: none); the next `wake` sends requests."""
        self.leave(partition)
        if leader_id < 0:
            return
        fetcher = self._fetcher_of(partition, leader_id)
        fetcher.add(partition, leader_epoch)
        self._leaders[partition] = fetcher
        self._changed[fetcher] = None

    def _fetcher_of(self, partition: Partition, leader_id: int) -> ReplicaFetcher:
        number = fetcher_number(partition.topic_partition, self._fetcher_count)
        while len(self._nodes) <= number:
            self._nodes.append(self._new_nodes(len(self._nodes)))
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, number] = ReplicaFetcher(
                self._metadata.node_id,
                leader_id,
                self._settings,
                broker_epoch=lambda: self._brokers.broker_epoch,
                on_fetched=self._replicas.fetched,
                limit=self._limit,
                traffic=self._replicas.traffic,
                on_failed=self._replicas.failed,
            )
            fetcher.number = number
        return fetcher

    def reconfigure(self, config: BrokerConfig) -> None:
        """Redistribute the partitions when the number of fetchers has changed."""
        if config.num_replica_fetchers == self._fetcher_count:
            return
        self._fetcher_count = config.num_replica_fetchers
        for partition, fetcher in list(self._leaders.items()):
            if fetcher.number != fetcher_number(partition.topic_partition, self._fetcher_count):
                self.follow(partition, fetcher.leader_id, partition.leader_epoch)
        self.wake()
        for key in [key for key in self._fetchers if key[1] >= self._fetcher_count]:
            del self._fetchers[key]
        while len(self._nodes) > self._fetcher_count:
            self._nodes.pop().close()

    def leave(self, partition: Partition) -> None:
        """Stop replicating a partition."""
        fetcher = self._leaders.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)
            self._changed[fetcher] = None

    def wake(self) -> None:
        """Send the requests that are due after the changes since the last call."""
        self.directories.wake()
        changed, self._changed = self._changed, {}
        for fetcher in changed:
            self._begin_truncation(fetcher)
            self._drive(fetcher)

    def _flush_cuts(self, fetcher: ReplicaFetcher) -> None:
        """Make truncations durable, then fetch these logs; a failed disk is reported elsewhere."""

        def done(flush: Pending[None], flushed: Callable[[], None]) -> None:
            if flush.error is None:
                flushed()
                self._drive(fetcher)

        for unflushed, flushed in fetcher.take_unflushed():
            flush = self._replicas.logs.flushes.make_durable(unflushed)
            flush.on_done(partial(done, flushed=flushed))

    def _build_remote_states(self, fetcher: ReplicaFetcher) -> None:
        """Begin to build what logs need that begin behind the records of remote storage."""
        for partition, leader_epoch, start_offset, built in fetcher.take_remote_states():
            if self.build_remote_state is None:
                built(None, self._clock.monotonic_ms())
                continue
            work = self.build_remote_state(partition, fetcher.leader_id, leader_epoch, start_offset)
            done = partial(self._remote_state_built, fetcher, partition, built)
            self._loop.worker.begin(work).on_done(done)

    def _remote_state_built(
        self,
        fetcher: ReplicaFetcher,
        partition: Partition,
        built: Callable[[Cut | None, int], None],
        done: Pending[Cut],
    ) -> None:
        cut = None
        if done.error is None:
            cut = done.value
            text = "%s begins at offset %d, behind the segments in remote storage"
            extra = {"event": "replica.remote_state_built"}
            log.info(text, partition.topic_partition, cut.end_offset, extra=extra)
        else:
            text = "%s cannot begin behind the segments in remote storage: %s; it is tried again"
            extra = {"event": "replica.remote_state_failed"}
            log.warning(text, partition.topic_partition, done.error, extra=extra)
        built(cut, self._clock.monotonic_ms())
        self._begin_truncation(fetcher)
        self._drive(fetcher)

    def _drive(self, fetcher: ReplicaFetcher) -> None:
        if self._is_closed:
            return
        self._flush_cuts(fetcher)
        self._build_remote_states(fetcher)
        now_ms = self._clock.monotonic_ms()
        request = fetcher.poll(now_ms)
        if request is None:
            self._drive_later(fetcher)
            return
        leader = self._metadata.image.cluster.brokers.get(fetcher.leader_id)
        node = None if leader is None else leader.node(self._listener)
        if node is None:
            fetcher.failed(now_ms)
            self._drive_later(fetcher)
            return
        address = node.host, node.port
        nodes = self._nodes[fetcher.number]
        outgoing: FlatRequest | Request
        outgoing = FollowerFetch(request) if isinstance(request, FetchValues) else request
        sent = nodes.send(node.node_id, address, outgoing, timeout_ms=self._timeout_ms)
        sent.on_done(lambda done: self._answered(fetcher, done))

    def _answered(self, fetcher: ReplicaFetcher, done: Pending[Any]) -> None:
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        if done.error is not None:
            fetcher.failed(now_ms)
        else:
            fetcher.received(done.value, now_ms, self._clock.now_ms())
            self._begin_truncation(fetcher)
        self._drive(fetcher)

    def _begin_truncation(self, fetcher: ReplicaFetcher) -> None:
        """Store lower recovery points first, which waits for the disks in workers.

        The logs in each directory are truncated when its checkpoint is durable.
        """
        cuts = fetcher.take_cuts()
        if not cuts or self._is_closed:
            return
        for checkpoint in self._replicas.logs.checkpoints.lower(cuts):
            checkpoint.start(self._run_on_volume).on_done(lambda _done: self._truncate(fetcher))
        self._truncate(fetcher)

    def _truncate(self, fetcher: ReplicaFetcher) -> None:
        """Truncate some logs now and the others in later turns: requests are served in between."""
        if self._is_closed:
            return
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        is_lowering = self._replicas.logs.checkpoints.is_lowering
        for _ in range(TRUNCATIONS_AT_ONCE):
            has_more = fetcher.truncate(1, now_ms, wall_ms, is_lowering)
            if not has_more or self._clock.monotonic_ms() >= now_ms + TRUNCATION_MS:
                break
        if has_more:
            self._call_later(0, lambda: self._truncate(fetcher))
        else:
            self._drive(fetcher)

    def _drive_later(self, fetcher: ReplicaFetcher) -> None:
        """Poll the fetcher at its next deadline; the latest call replaces earlier ones."""
        task = self._tasks.pop(fetcher, None)
        if task is not None:
            task.cancel()
        due_ms = fetcher.due_ms
        if due_ms is not None:
            self._tasks[fetcher] = self._timer.add(due_ms, lambda _now_ms: self._drive(fetcher))

    def stalls(self) -> Iterator[str]:
        """Yield fetchers that have a request to send and no timer that sends it."""
        for fetcher in self._fetchers.values():
            task = self._tasks.get(fetcher)
            is_awaited = fetcher in self._changed or (task is not None and task.is_waiting)
            if fetcher.due_ms is not None and not is_awaited and not self._is_closed:
                yield f"the fetcher of broker {fetcher.leader_id} sends nothing"

    def close(self) -> None:
        """Close the connections and send no further request."""
        self._is_closed = True
        for nodes in self._nodes:
            nodes.close()


def fetcher_number(partition: TopicPartition, count: int) -> int:
    """Return which of `count` fetchers of a leader replicates a partition."""
    topic, index = partition
    return java_index(31 * string_hash(topic) + index, count)


class FollowerFetch(FlatRequest):
    """A follower's Fetch in flat values, with the reader of its response."""

    __slots__ = ("_values",)
    message_key = FetchRequest.message_key
    versions = Versions(LOWEST_VERSION, FetchRequest.versions.highest)

    def __init__(self, values: FetchValues) -> None:
        self._values = values

    def write(self, version: int, correlation_id: int, client_id: str) -> bytes:
        """Return the frame."""
        return write_fetch_request(self._values, correlation_id, client_id, version)

    def read_response(self, frame: memoryview, version: int) -> FetchAnswer:
        """Read a response."""
        return read_fetch_response(frame, version)
