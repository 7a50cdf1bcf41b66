"""Log lines of a node's start: versions, directories, recovery, listeners.

Kafka: the first lines of KafkaRaftServer, LogManager and SocketServer.
"""

from __future__ import annotations

import logging
import platform
from typing import TYPE_CHECKING

from ottla._version import __version__
from ottla.records.compiled import NOT_COMPILED, uncompiled_modules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log_set.log_set import LogSet

log = logging.getLogger("ottla.node")
PROGRESS_INTERVAL_MS = 5000


def log_starting(config: BrokerConfig) -> None:
    """Write the version and settings of the node, and a warning without compiled modules."""
    is_fast = not uncompiled_modules()
    log.info(
        "starting Ottla %s (%s) on Python %s: node %d, roles %s, log directories %s",
        __version__,
        "compiled" if is_fast else "not compiled",
        platform.python_version(),
        config.node_id,
        ",".join(config.process_roles),
        ", ".join(config.data_directories),
        extra={"event": "node.starting"},
    )
    if not is_fast:
        log.warning(NOT_COMPILED, extra={"event": "node.not_compiled"})


class LoadProgress:
    """Writes the progress of loading logs, every few seconds; called by workers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin_ms = self._written_ms = clock.monotonic_ms()
        self._count = 0

    def opened(self) -> None:
        """Count a log."""
        self._count += 1
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._written_ms >= PROGRESS_INTERVAL_MS:
            self._written_ms = now_ms
            elapsed_s = (now_ms - self._begin_ms) // 1000
            text = "loading logs: %d are open after %d s"
            log.info(text, self._count, elapsed_s, extra={"event": "logs.loading"})


def log_recovered(log_dirs: Iterable[LogDirectory], logs: LogSet, elapsed_ms: int) -> None:
    """Write the count of loaded logs, and the directories that were not closed cleanly."""
    for log_dir in log_dirs:
        is_unclean = log_dir.is_online and not log_dir.had_clean_shutdown
        if is_unclean and any(logs.table.logs_in(log_dir)):
            text = "log directory %s was not closed cleanly: its logs were checked and recovered"
            log.info(text, log_dir.path, extra={"event": "log_dir.recovered"})
    text = "loaded %d logs in %d ms; %d of them are damaged and offline"
    extra = {"event": "logs.loaded"}
    log.info(text, len(logs), elapsed_ms, len(logs.broken), extra=extra)


def log_listening(addresses: Mapping[str, tuple[str, int]], metrics_url: str | None) -> None:
    """Write one line for each listener."""
    extra = {"event": "listener.open"}
    for name, (host, port) in addresses.items():
        log.info("listening on %s://%s:%d", name, host, port, extra=extra)
    if metrics_url is not None:
        log.info("metrics and probes at %s", metrics_url, extra=extra)
