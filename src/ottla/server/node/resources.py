"""What a node acquires before its parts: ports, directories, workers, reporters.

Kafka: kafka.server.SharedServer, the first half of BrokerServer.startup;
kafka.server.DynamicMetricsReporters.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from contextlib import ExitStack
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.config.reconfiguration import wrapped
from ottla.metadata.broker import ListenerAddress
from ottla.purgatory.loop import Loop
from ottla.purgatory.work import MAX_STEPS, Worker
from ottla.server.broker.directory_moves import concurrent_moves
from ottla.server.broker.log_cleaner import LogCleaner
from ottla.server.http.endpoint import HttpPort
from ottla.server.node.identity import identify, tolerated
from ottla.server.node.listeners import BoundPorts
from ottla.server.node.plugins import (
    JAVA_BUILT_IN,
    METRIC_REPORTERS,
    PLUGINS_GROUP,
    REPORTER_METHODS,
    PluginError,
    is_registered,
    load_class,
    load_plugin,
    load_policies,
    load_storage_manager,
)
from ottla.server.system.timers import LoopTimer
from ottla.server.system.turns import TurnWatch, WatchedLoop
from ottla.server.system.workers import VolumeWorkers, new_lock
from ottla.storage.directories.log_dir import LogDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable

    from ottla.config.broker import BrokerConfig
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.broker.telemetry import Telemetry
    from ottla.server.remote.log_manager import Tier
    from ottla.server.system.environment import Environment, RunInWorker, WorkerPool
    from ottla.storage.log_set.log_set import LogSet


class WorkerPools:
    """A node's workers by purpose and, for log directories, by volume."""

    def __init__(
        self, config: BrokerConfig, environment: Environment, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.quorum: WorkerPool = environment.start_workers(loop)
        """For votes and the metadata log: they wait for no other write."""
        self.disk = VolumeWorkers(partial(environment.start_workers, loop, 2))
        """For flushes, checkpoints, removals and cold reads."""
        self.new_logs = VolumeWorkers(partial(environment.start_workers, loop, 2))
        """For the logs of new partitions, which wait for no flush."""
        self.receivers: WorkerPool = environment.start_workers(loop, 1)
        """For calls that may wait for a network: receivers of clients' metrics, name servers."""
        self.trials: WorkerPool = environment.start_workers(loop, 1)
        """For changed settings before they are stored: files, keys and classes that they name."""
        self.handshakes: WorkerPool = environment.start_workers(loop)
        """For TLS handshakes and steps of logins, which wait for nothing else."""
        self.providers: WorkerPool = environment.start_workers(loop, 4)
        """For keys, tokens and tickets, whose providers may be slow."""
        self.decompression: WorkerPool = environment.start_workers(loop)
        self.moves = VolumeWorkers(
            partial(environment.start_workers, loop, concurrent_moves(config))
        )
        """For moves between log directories."""
        self.cleaning = VolumeWorkers(
            partial(environment.start_workers, loop, max(2 * config.log_cleaner_threads, 1))
        )
        """For the log cleaner; its threads may be doubled while the node runs."""

    def is_idle(self, volume: Hashable) -> bool:
        """Whether no call to a volume waits or runs."""
        pools = (self.disk, self.new_logs, self.moves, self.cleaning)
        return all(pool.is_idle(volume) for pool in pools)

    def close(self) -> None:
        """Wait for the jobs that run; those that wait are dropped."""
        for workers in (
            self.quorum,
            self.disk,
            self.new_logs,
            self.receivers,
            self.trials,
            self.handshakes,
            self.providers,
            self.decompression,
            self.moves,
            self.cleaning,
        ):
            workers.close()


class NodeResources:
    """Held from construction until `close`; directories are locked and identified."""

    def __init__(self, config: BrokerConfig, environment: Environment, *, may_format: bool) -> None:
        """Acquire all resources or none; may_format lets an empty data directory be formatted.

        Raises PortTaken, PluginError, KafkaError for a directory in use, OSError for the disk.
        """
        self.environment = environment
        self.turns = TurnWatch(environment.stopwatch.elapsed_s)
        loop = asyncio.get_running_loop()
        is_watched = environment.stopwatch.is_real
        if is_watched:
            loop = cast("asyncio.AbstractEventLoop", WatchedLoop(loop, self.turns))
        self.loop = loop
        elapsed_s = environment.stopwatch.elapsed_s
        self.worker = Worker(
            loop.call_soon,
            elapsed_s,
            max_steps=inf if is_watched else MAX_STEPS,
            on_long_step=self.turns.part_took,
        )
        self.collections = CollectionSchedule(loop, self.turns)
        """Off until it is started: the process may have other users than this node."""
        with ExitStack() as held:
            self.policies = load_policies(config)
            held.callback(self.policies.close)
            self.reporters = Reporters(config)
            held.callback(self.reporters.close)
            self.workers = WorkerPools(config, environment, self.loop)
            held.callback(self.workers.close)
            self.timer = LoopTimer(self.loop, environment.clock, self.turns if is_watched else None)
            held.callback(self.timer.close)
            self.core_loop = Loop(environment.clock, self.timer, self.worker)
            self.ports = BoundPorts(config, environment)
            held.callback(self.ports.close)
            self.http_port = HttpPort(config.own, environment.network)
            held.callback(self.http_port.close)
            self.log_dirs: list[LogDirectory] = []
            held.callback(self.release_directories)
            for path in dict.fromkeys((*config.data_directories, config.metadata_directory)):
                self._lock(config, path)
            self.data_dirs = [
                dir_ for dir_ in self.log_dirs if dir_.path in config.data_directories
            ]
            """The directories of partitions: metadata.log.dir may be another one."""
            self.identity = identify(config, self.log_dirs, environment, may_format=may_format)
            self._held = held.pop_all()
        metadata_path = config.metadata_directory
        self.metadata_log_dir = next(dir_ for dir_ in self.log_dirs if dir_.path == metadata_path)
        self.controller_addresses = {
            name: ListenerAddress(host, port, 0)
            for name, (host, port) in self.ports.advertised_controllers.items()
        }

    def early_listeners(self, config: BrokerConfig) -> Collection[str]:
        """Return the listeners that open before the metadata are loaded: the controllers'."""
        named = config.early_start_listeners
        return self.controller_addresses if named is None else {name.upper() for name in named}

    @property
    def channel_parts(self) -> dict[str, Any]:
        """The arguments of connections to other nodes."""
        return {"loop": self.loop, "clock": self.environment.clock, "timer": self.timer}

    def open_tier(self, config: BrokerConfig) -> Tier:
        """Return the storage manager, not connected, its index cache and workers; PluginError."""
        from ottla.server.remote.calls import RemoteCalls
        from ottla.server.remote.log_manager import Tier, thread_counts
        from ottla.storage.remote.index_cache import RemoteIndexCache

        environment, loop = self.environment, self.loop
        storage = load_storage_manager(config, environment.open_directory, self.identity.cluster_id)
        cache = RemoteIndexCache(
            self.data_dirs[0].directory,
            storage,
            max_bytes=config.remote_log_index_file_cache_total_size_bytes,
            ttl_ms=config.remote_log_index_file_cache_ttl_ms,
            now_ms=environment.clock.monotonic_ms,
            new_lock=new_lock,
        )
        pool, clock = environment.start_detached(loop), environment.clock
        copiers, expirers, followers, readers = (
            RemoteCalls(pool, count, clock) for count in thread_counts(config)
        )
        return Tier(storage, cache, pool, copiers, expirers, readers, followers)

    def log_cleaner(self, logs: LogSet, metadata: BrokerMetadata) -> LogCleaner:
        """Return the log cleaning, with the settings in force and secret seeds."""
        return LogCleaner(
            logs,
            lambda: metadata.config,
            loop=self.core_loop,
            run_on_volume=self.workers.cleaning.run,
            new_uuid=self.environment.new_uuid,
        )

    def _lock(self, config: BrokerConfig, path: str) -> None:
        """Lock a directory, before anything in it is read or written."""
        log_dir = LogDirectory(path, self.environment.open_directory(path))
        with tolerated(config, log_dir):
            log_dir.lock()
        self.log_dirs.append(log_dir)

    def release_directories(self) -> None:
        """Free the locks."""
        for log_dir in self.log_dirs:
            log_dir.release()

    def close(self) -> None:
        """Release everything."""
        self._held.close()


log = logging.getLogger("ottla.node")


class Reporters:
    """One object a class; those with `export_metrics` receive clients' metrics."""

    def __init__(self, config: BrokerConfig) -> None:
        """Load the classes; PluginError names all that cannot be loaded."""
        self._plugins: dict[str, Any] = {}
        self._requested = config
        self._imported: dict[str, PluginError | None] = dict.fromkeys(_names(config))
        """By name: why the class cannot be loaded, None where it was imported."""
        errors = self._load(config, _names(config))
        if errors:
            self.close()
            raise PluginError("; ".join(map(str, errors)))

    def _load(self, config: BrokerConfig, names: Iterable[str]) -> list[PluginError]:
        """Load the classes that can be loaded; return the errors of the others."""
        errors = []
        for name in names:
            try:
                self._plugins[name] = load_plugin(name, REPORTER_METHODS, config.given)
            except PluginError as error:
                errors.append(error)
        return errors

    @property
    def receivers(self) -> list[Any]:
        """The plug-ins that receive clients' metrics."""
        return [
            plugin
            for plugin in self._plugins.values()
            if callable(getattr(plugin, "export_metrics", None))
        ]

    def apply(self, config: BrokerConfig, telemetry: Telemetry, run: RunInWorker) -> None:
        """Close the reporters removed from metric.reporters; a worker imports added classes."""
        self._requested = config
        names = _names(config)
        for name in [name for name in self._plugins if name not in names]:
            _close(name, self._plugins.pop(name))
        telemetry.receive_with(self.receivers)
        added = [name for name in names if name not in self._plugins]
        if not added:
            return

        if all(self._imported.get(name, name) is None for name in added):
            self._add(config, added, telemetry)
            return

        def imported(_result: object, error: Exception | None) -> None:
            if error is not None:
                raise error
            if self._requested is config:  # else the later change has its own import
                self._add(config, added, telemetry)

        run(lambda: self._import(config, added), imported)

    def _add(self, config: BrokerConfig, names: Iterable[str], telemetry: Telemetry) -> None:
        lost = [error for name in names if (error := self._imported[name]) is not None]
        usable = [name for name in names if self._imported[name] is None]
        for error in (*lost, *self._load(config, usable)):  # its check could still load it
            log.error(
                "a metrics reporter is not loaded: %s; install it or correct metric.reporters",
                error,
                extra={"event": "reporter.lost"},
            )
        telemetry.receive_with(self.receivers)

    def refusal(self, current: BrokerConfig, proposed: BrokerConfig) -> str | None:
        """Return Kafka's text when a class of changed metric.reporters cannot be loaded.

        It imports: call it in a worker.
        """
        names = _names(proposed)
        if proposed.metric_reporters == current.metric_reporters:
            return None
        self._import(proposed, names)
        if all(self._imported[name] is None for name in names):
            return None
        return wrapped(
            "Validation of dynamic config update of Set(metric.reporters) failed with class class "
            "kafka.server.DynamicMetricsReporters"
        )

    def _import(self, config: BrokerConfig, names: Iterable[str]) -> None:
        """Import classes, in a worker; a name that is not of the node's file must be registered."""
        own = [name.strip() for name in str(config.given.get(METRIC_REPORTERS) or "").split(",")]
        for name in names:
            try:
                if name not in own and not is_registered(name):
                    raise PluginError(
                        f"class {name} cannot be loaded: a package must register it in the entry "
                        f"point group {PLUGINS_GROUP}, or the node's own settings name it"
                    )
                load_class(name, REPORTER_METHODS)
            except PluginError as error:
                self._imported[name] = error
            else:
                self._imported[name] = None

    def close(self) -> None:
        """Close them all."""
        while self._plugins:
            _close(*self._plugins.popitem())


def _names(config: BrokerConfig) -> list[str]:
    return [name for name in config.metric_reporters if name and name not in JAVA_BUILT_IN]


def _close(name: str, plugin: Any) -> None:
    try:
        plugin.close()
    except Exception as error:
        text = "metrics reporter %s failed to close; the node continues, correct the plug-in"
        log.exception(text, name, exc_info=error, extra={"event": "reporter.not_closed"})


WORK_S: Final = 0.0025
"""The work of the loop after which it collects: creating objects takes about as long as that."""
CHECK_EVERY: Final = 400
"""Collections of young objects between two checks whether a full one is due."""
_YOUNG, _ALL = 1, 2
_GROWTH: Final = 2
"""A full collection is due when the used memory blocks have grown by this factor since the last."""
_MIN_GROWTH_BLOCKS: Final = 1_500_000
"""And by this number at least, some 100 MB: it visits all objects, a million in 0.2 s."""


class CollectionSchedule:
    """Collects garbage on one loop, in turns of its own; Python's own schedule is off."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turns: TurnWatch,
        *,
        collect: Callable[[int], object] = gc.collect,
        allocated_blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        self._loop = loop
        self._turns = turns
        self._collect = collect
        self._allocated_blocks = allocated_blocks
        self._count = 0
        self._blocks = 0

    def start(self) -> None:
        """Exclude the objects of the start from all collections, and collect as scheduled."""
        self._collect(_ALL)
        gc.freeze()
        gc.disable()
        self._blocks = self._allocated_blocks()
        self._turns.report_work(WORK_S, self._plan)

    def stop(self) -> None:
        """Return to Python's own schedule."""
        self._turns.report_work(WORK_S, None)
        gc.enable()

    def _plan(self) -> None:
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Collect the young objects; the survivors count as old and are not visited again."""
        self._count += 1
        if self._count % CHECK_EVERY == 0 and self._is_full_due():
            self._collect(_ALL)
            self._blocks = self._allocated_blocks()
        else:
            self._collect(_YOUNG)

    def _is_full_due(self) -> bool:
        blocks = self._allocated_blocks()
        return blocks > max(self._blocks * _GROWTH, self._blocks + _MIN_GROWTH_BLOCKS)
