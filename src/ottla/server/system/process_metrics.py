"""The process and its disks as series; read by the thread that serves them, not by the loop.

Kafka: LinuxIoMetricsCollector (LinuxDiskReadBytes); the process's figures under the names that
Prometheus's own libraries use.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import psutil

from ottla._version import __version__
from ottla.metrics.families import Kind, Series, gauge, label_text, own

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONE = ("",)
_CPU = own("process_cpu_seconds", "User and system CPU time spent.", Kind.COUNTER)
_RESIDENT = own("process_resident_memory_bytes", "Resident memory.")
_VIRTUAL = own("process_virtual_memory_bytes", "Virtual memory.")
_FILES = own("process_open_fds", "Open file descriptors.")
_MAX_FILES = own("process_max_fds", "Limit of open file descriptors.")
_START = own("process_start_time_seconds", "Start of the process since the Unix epoch.")
_READ = gauge("kafka.server", "KafkaServer", "linux-disk-read-bytes", "Bytes read from disks.")
_WRITE = gauge("kafka.server", "KafkaServer", "linux-disk-write-bytes", "Bytes written to disks.")
_BUILD = own("ottla_build_info", "1; the versions are labels.")
_BUILD_LABELS = (label_text(version=__version__, python=platform.python_version()),)


class ProcessMetrics:
    """Reads this process."""

    def __init__(self) -> None:
        self._process = psutil.Process()

    def collect(self) -> Iterator[Series]:
        """Yield the series that this platform provides."""
        process = self._process
        with process.oneshot():  # holds a lock: nothing may be yielded within
            cpu, memory, start_s = process.cpu_times(), process.memory_info(), process.create_time()
        yield Series(_CPU, _ONE, (cpu.user + cpu.system,))
        yield Series(_RESIDENT, _ONE, (memory.rss,))
        yield Series(_VIRTUAL, _ONE, (memory.vms,))
        yield Series(_START, _ONE, (start_s,))
        yield Series(_BUILD, _BUILD_LABELS, (1,))
        yield from _descriptors(process)
        yield from _disk(process)


def _descriptors(process: psutil.Process) -> Iterator[Series]:
    if not hasattr(process, "num_fds"):  # Windows
        return
    yield Series(_FILES, _ONE, (process.num_fds(),))
    if hasattr(process, "rlimit"):  # Linux
        yield Series(_MAX_FILES, _ONE, (process.rlimit(psutil.RLIMIT_NOFILE)[0],))


def _disk(process: psutil.Process) -> Iterator[Series]:
    try:
        counters = process.io_counters() if hasattr(process, "io_counters") else None
    except psutil.Error:  # a container may forbid it
        return
    if counters is not None:
        yield Series(_READ, _ONE, (counters.read_bytes,))
        yield Series(_WRITE, _ONE, (counters.write_bytes,))
