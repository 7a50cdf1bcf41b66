"""The way back of a log directory that went offline, without a restart of its node.

| state       | event                                        | next state  |
|-------------|----------------------------------------------|-------------|
| OFFLINE     | it is due, its loss is known, no call hangs  | READING     |
| READING     | the disk fails again, or it is another one   | OFFLINE     |
| READING     | its logs are recovered and in the log set    | REGISTERING |
| REGISTERING | the metadata have it as online               | ONLINE      |
| REGISTERING | the disk fails again                         | OFFLINE     |

A directory is read as at a start: identity, lock, recovery of its logs from the disk alone. Its
partitions then follow their leaders, which cut what was not replicated. The controller treats them
as replicas after an unclean shutdown: another in-sync one leads. Where no other is left, the last
known leader, or without ELR the last in-sync replica, leads with what its disk has.

The directory of the metadata log does not return, nor does the last one: their node ends.

Kafka: none; a directory there is offline until a restart.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.own import reserve_bytes
from ottla.diagnosis.advice import DiskError, advice_on
from ottla.errors import CorruptMessage, KafkaError, LocalDiskError
from ottla.purgatory.backoff import Backoff
from ottla.storage.log_set.checkpoint_queue import write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.config.broker import BrokerConfig
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.timing_wheel import TimerTask
    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.directories.loader import DirectoryLoader, FoundLog
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log_set.checkpoint_queue import DurableCheckpoint
    from ottla.storage.log_set.log_set import LogSet
    from ottla.types import Uuid

log = logging.getLogger("ottla.maintenance")
_LONGEST: Final = 16
"""The longest delay, in intervals: a disk that fails again and again costs recoveries."""
_STEADY: Final = 32
"""Intervals online after which earlier failures no longer count."""
_OF_DISKS: Final = (OSError, KafkaError, CorruptMessage)
"""Errors that end an attempt; others are bugs."""


class ReturnState(Enum):
    """Where a directory is on its way back."""

    OFFLINE = auto()
    READING = auto()
    REGISTERING = auto()
    ONLINE = auto()


class ReturnSteps(NamedTuple):
    """What the node's other parts do for a directory that returns."""

    is_idle: Callable[[Hashable], bool]
    """Whether no call to a volume is under way: one that hung could write after the return."""
    is_registered: Callable[[Uuid], bool]
    """Whether the metadata have a directory as online."""
    is_stray: Callable[[FoundLog], bool]
    assigned: Callable[[FoundLog], Uuid | None]
    register: Callable[[Uuid], Pending[None]]
    watch: Callable[[LogDirectory], None]
    """Called before a directory is online."""
    host: Callable[[LogDirectory], None]
    """Serves the directory's partitions."""


class _Return:
    """The state of one directory."""

    def __init__(self) -> None:
        self.state = ReturnState.OFFLINE
        self.failures = 0
        """Consecutive ones, also those of its attempts."""
        self.online_since_ms = 0
        self.task: TimerTask | None = None
        """The next attempt, while it waits."""
        self.loader: DirectoryLoader | None = None
        """Of the last attempt."""


class DirectoryReturns:
    """Tries the offline directories of a node again, each after a delay that doubles."""

    def __init__(
        self,
        logs: LogSet,
        config: BrokerConfig,
        cluster_id: str,
        steps: ReturnSteps,
        *,
        loop: Loop,
        run_on_volume: RunOnVolume,
    ) -> None:
        self._logs = logs
        self._config = config
        self._cluster_id = cluster_id
        self._steps = steps
        self._clock = loop.clock
        self._timer = loop.timer
        self._worker = loop.worker
        self._run_on_volume = run_on_volume
        self._interval_ms: int = config.own.log_dir_return_interval_ms
        self._backoff = Backoff(self._interval_ms, self._interval_ms * _LONGEST)
        self._returns: dict[LogDirectory, _Return] = {}
        self._is_closed = False

    def state_of(self, log_dir: LogDirectory) -> ReturnState:
        """Return the state of a directory."""
        entry = self._returns.get(log_dir)
        if entry is not None:
            return entry.state
        return ReturnState.ONLINE if log_dir.is_online else ReturnState.OFFLINE

    def failed(self, log_dir: LogDirectory) -> None:
        """Try a directory that went offline again, after the delay; not with a setting of 0."""
        if not self._interval_ms:
            return
        entry = self._returns.setdefault(log_dir, _Return())
        online_ms = self._clock.monotonic_ms() - entry.online_since_ms
        if entry.state is ReturnState.ONLINE and online_ms > _STEADY * self._interval_ms:
            entry.failures = 0
        if entry.task is None:
            self._retry(log_dir, entry)

    def close(self) -> None:
        """Begin no further attempt, and end those that read: a stop waits for the workers."""
        self._is_closed = True
        for entry in self._returns.values():
            if entry.loader is not None:
                entry.loader.cancel()

    def _retry(self, log_dir: LogDirectory, entry: _Return) -> None:
        entry.state = ReturnState.OFFLINE
        entry.failures += 1
        self._later(log_dir, entry, self._backoff.after(entry.failures))

    def _later(self, log_dir: LogDirectory, entry: _Return, delay_ms: int) -> None:
        due_ms = self._clock.monotonic_ms() + delay_ms
        entry.task = self._timer.add(due_ms, lambda _now_ms: self._attempt(log_dir, entry))

    def _refused(self, log_dir: LogDirectory, entry: _Return, reason: str) -> None:
        if reason != log_dir.offline_reason:  # each is logged once
            log_dir.offline_reason = reason
            log.warning(
                "log directory %s stays offline: %s; it is tried again",
                log_dir.path,
                reason,
                extra={"event": "directory.not_returned", "path": log_dir.path},
            )
        self._retry(log_dir, entry)

    def _attempt(self, log_dir: LogDirectory, entry: _Return) -> None:
        entry.task = None
        if self._is_closed:
            return
        directory_id = log_dir.directory_id
        if directory_id is not None and self._steps.is_registered(directory_id):
            # the controller must have moved its leaderships before
            self._later(log_dir, entry, self._interval_ms)
            return
        if not self._steps.is_idle(log_dir.directory.volume):
            self._refused(log_dir, entry, "calls to its disk hang; check the disk")
            return
        entry.state = ReturnState.READING
        loader = self._logs.loader(log_dir, self._clock.now_ms(), self._steps.is_stray)
        entry.loader = loader

        setting_bytes: int = self._config.own.log_dir_reserve_bytes

        def read() -> None:
            total_bytes = log_dir.directory.total_space()
            log_dir.check_return(
                self._cluster_id, self._config.node_id, reserve_bytes(setting_bytes, total_bytes)
            )
            loader.run()

        self._run_on_volume(
            log_dir.directory.volume,
            read,
            lambda _none, error: self._read(log_dir, entry, loader, error),
        )

    def _read(
        self,
        log_dir: LogDirectory,
        entry: _Return,
        loader: DirectoryLoader,
        error: Exception | None,
    ) -> None:
        others = [one.directory_id for one in self._logs.directories if one is not log_dir]
        if error is None and log_dir.directory_id in others:
            log_dir.meta = None
            error = LocalDiskError("it is a copy of another one; mount the disk that failed")
        loader.done(error)
        if error is None and not self._is_closed:
            self._take(log_dir, entry, loader)
        elif error is not None and not self._is_closed:
            log_dir.release()
            if not isinstance(error, _OF_DISKS):
                raise error
            reason = f"{error}; {_advice(error)}" if isinstance(error, OSError) else str(error)
            self._refused(log_dir, entry, reason)

    def _take(self, log_dir: LogDirectory, entry: _Return, loader: DirectoryLoader) -> None:
        """Put the logs into the set, then register the directory, then serve its partitions."""
        self._steps.watch(log_dir)
        taking = self._logs.take_returned(loader, self._clock.now_ms(), self._steps.assigned)

        def taken(done: Pending[list[DurableCheckpoint]]) -> None:
            if done.error is not None:  # of another directory, or of descriptors
                self._logs.fail(log_dir, LocalDiskError(str(done.error)))
                if not isinstance(done.error, _OF_DISKS):
                    raise done.error
            if log_dir.is_online:
                write_all(done.value, self._run_on_volume).on_done(written)

        def written(_done: object) -> None:
            if log_dir.is_online and not self._is_closed:
                entry.state = ReturnState.REGISTERING
                assert log_dir.directory_id is not None, "check_return has seen it"
                self._steps.register(log_dir.directory_id).on_done(registered)

        def registered(_done: object) -> None:
            if log_dir.is_online and not self._is_closed:
                self._serve(log_dir, entry)

        self._worker.run(taking).on_done(taken)

    def _serve(self, log_dir: LogDirectory, entry: _Return) -> None:
        entry.state = ReturnState.ONLINE
        entry.online_since_ms = self._clock.monotonic_ms()
        log.info(
            "log directory %s is online again with %d logs, which follow their leaders",
            log_dir.path,
            len(self._logs.table.logs_in(log_dir)),
            extra={"event": "directory.online", "path": log_dir.path},
        )
        self._steps.host(log_dir)


def offline_reason(log_dir: LogDirectory, return_interval_ms: int) -> str:
    """Return why a directory is offline, and what to do, in one line.

    With an interval of 0 it stays offline until a restart.
    """
    try:
        free = f", {log_dir.directory.free_space()} bytes are free"
    except OSError:
        free = ""
    way = "it returns by itself (log.dir.return.interval.ms)"
    step = f": {way}" if return_interval_ms else ", then start again"
    return f"{log_dir.failure}{free}; {_advice(log_dir.failure)}{step}"


def _advice(error: OSError | None) -> str:
    known = advice_on(DiskError((error and error.errno) or 0))
    return "check the disk" if known is None else known.next_step
