"""Measures each log directory's free space; produces are refused below the reserve.

Kafka: none; a broker there finds out when a write fails, and its directory goes offline.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ottla.config.disk_reserve import reserve_bytes

if TYPE_CHECKING:
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.directories.log_dir import LogDirectory

log = logging.getLogger("ottla.disk")
MAX_INTERVAL_MS = 1000
MIN_INTERVAL_MS = 50
MAX_INGEST_BYTES_PER_MS = 250_000
"""Assumed maximum ingest rate: more than the loop of one node takes from clients."""


class SpaceWatch:
    """Compares free space with the reserve; only the event loop changes the state."""

    def __init__(self, replicas: ReplicaSet, setting_bytes: int) -> None:
        """setting_bytes is `log.dir.reserve.bytes`; 0 disables the reserve."""
        self._replicas = replicas
        self._setting_bytes = setting_bytes
        self._measuring: set[LogDirectory] = set()
        self.interval_ms = MAX_INTERVAL_MS
        """Time until the next measurement: shorter the nearer the reserve is."""

    def measure_now(self) -> None:
        """Measure on this thread; for the start of a node."""
        for log_dir in self._replicas.logs.online_directories:
            with suppress(OSError):
                self._measured(log_dir, _measure(log_dir), None)

    def measure(self, run_on_volume: RunOnVolume) -> None:
        """Measure in workers, except directories whose last measurement hangs."""
        for log_dir in self._replicas.logs.online_directories:
            if log_dir not in self._measuring:
                self._measuring.add(log_dir)
                run_on_volume(
                    log_dir.directory.volume,
                    partial(_measure, log_dir),
                    partial(self._measured, log_dir),
                )

    def _measured(
        self, log_dir: LogDirectory, found: tuple[int, int] | None, _error: Exception | None
    ) -> None:
        """Apply a measurement; an error changes nothing: the next write fails for its reason."""
        self._measuring.discard(log_dir)
        if found is not None:
            free_bytes, total_bytes = found
            if log_dir.measured(free_bytes, reserve_bytes(self._setting_bytes, total_bytes)):
                _log_state(log_dir)
        online = self._replicas.logs.online_directories
        self._replicas.is_short_of_space = any(log_dir.is_short_of_space for log_dir in online)
        self.interval_ms = min(map(_interval_ms, online), default=MAX_INTERVAL_MS)


def _measure(log_dir: LogDirectory) -> tuple[int, int]:
    """Return the free and the total bytes of the volume; runs in a worker."""
    return log_dir.directory.free_space(), log_dir.directory.total_space()


def _interval_ms(log_dir: LogDirectory) -> int:
    """Return how soon the reserve could be reached at the maximum ingest rate, within limits."""
    if log_dir.is_short_of_space or not log_dir.reserve_bytes:
        return MAX_INTERVAL_MS
    reached_ms = (log_dir.free_bytes - log_dir.reserve_bytes) // MAX_INGEST_BYTES_PER_MS
    return min(max(reached_ms, MIN_INTERVAL_MS), MAX_INTERVAL_MS)


def _log_state(log_dir: LogDirectory) -> None:
    """Log when produces begin to be refused, and when they are accepted again."""
    if not log_dir.is_short_of_space:
        log.warning(
            "log directory %s has %d bytes left again; produces to its partitions are accepted",
            log_dir.path,
            log_dir.free_bytes,
            extra={"event": "disk.space", "path": log_dir.path},
        )
        return
    log.error(
        "log directory %s has %d bytes left, %d less than its reserve of %d: produces to its "
        "partitions are refused with KAFKA_STORAGE_ERROR, all other requests are served; free some "
        "space, shorten the retention of topics, or lower log.dir.reserve.bytes (0 disables it)",
        log_dir.path,
        log_dir.free_bytes,
        log_dir.reserve_bytes - log_dir.free_bytes,
        log_dir.reserve_bytes,
        extra={"event": "disk.reserve", "path": log_dir.path},
    )
