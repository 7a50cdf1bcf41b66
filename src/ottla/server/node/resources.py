"""The resources of a node, acquired before its parts are built: ports, directories, workers.

Kafka: kafka.server.SharedServer, the first half of BrokerServer.startup.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

from ottla.metadata.broker import ListenerAddress
from ottla.purgatory.loop import Loop
from ottla.purgatory.work import MAX_STEPS, Worker
from ottla.server.broker.directory_moves import concurrent_moves
from ottla.server.broker.log_cleaner import LogCleaner
from ottla.server.http.endpoint import HttpPort
from ottla.server.node.identity import identify, tolerated
from ottla.server.node.listeners import BoundPorts
from ottla.server.node.plugins import load_policies
from ottla.server.node.reporters import Reporters
from ottla.server.system.garbage_collection import CollectionSchedule
from ottla.server.system.timers import LoopTimer
from ottla.server.system.turns import TurnWatch, WatchedLoop
from ottla.server.system.workers import VolumeWorkers
from ottla.storage.directories.log_dir import LogDirectory

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.config.broker import BrokerConfig
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.system.environment import Environment, WorkerPool
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
            self.data_dirs = [one for one in self.log_dirs if one.path in config.data_directories]
            """The directories of partitions: metadata.log.dir may be another one."""
            self.identity = identify(config, self.log_dirs, environment, may_format=may_format)
            self._held = held.pop_all()
        metadata_path = config.metadata_directory
        self.metadata_log_dir = next(one for one in self.log_dirs if one.path == metadata_path)
        self.controller_addresses = {
            name: ListenerAddress(host, port, 0)
            for name, (host, port) in self.ports.advertised_controllers.items()
        }

    def early_listeners(self, config: BrokerConfig) -> Collection[str]:
        """Return the listeners that open before the metadata are loaded: the controllers'."""
        named = config.early_start_listeners
        return self.controller_addresses if named is None else {one.upper() for one in named}

    @property
    def channel_parts(self) -> dict[str, Any]:
        """The arguments of connections to other nodes."""
        return {"loop": self.loop, "clock": self.environment.clock, "timer": self.timer}

    def log_cleaner(self, logs: LogSet, metadata: BrokerMetadata) -> LogCleaner:
        """Return the log cleaning, with the settings in force and secret seeds."""
        return LogCleaner(
            logs,
            lambda: metadata.config,
            clock=self.environment.clock,
            timer=self.timer,
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
