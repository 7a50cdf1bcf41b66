"""The process and its machine: limits, names, ports, metrics, the service manager.

Kafka: what the JVM and its own start scripts ask the system for; LinuxIoMetricsCollector
(LinuxDiskReadBytes); the process's figures under the names that Prometheus's own libraries use.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psutil

from ottla._version import __version__
from ottla.metrics.families import Kind, Series, gauge, label_text, own
from ottla.server.system.environment import Limits
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_KEPT_BYTES = 8 * 1024 * 1024
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")


def hide_files_from_others() -> None:
    """Let files that this process creates be read by its user and its group only."""
    os.umask(os.umask(0o077) | stat.S_IRWXO | stat.S_IWGRP)


def raise_descriptor_limit() -> None:
    """Raise the limit on descriptors to the hard limit, as the JVM does for Kafka."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # an unlimited hard limit may be refused
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Let glibc's allocator keep up to 8 MiB of freed memory for the next request.

    The buffers of a produced batch of 1 MB are allocated and freed with every request. If they were
    returned to the system, their pages would fault again each time, which is half of the cost of
    such a request. Other allocators are not changed.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)


def process_limits() -> Limits:
    """Return the memory of the machine or control group, and the limit on descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(_memory_bytes(), descriptors)


def _memory_bytes() -> int:
    total: int = psutil.virtual_memory().total
    with suppress(OSError, ValueError):  # no limit on this control group, or none known
        return min(total, int(_MEMORY_LIMIT.read_text(encoding="ascii")))
    return total


def holder_of_port(port: int) -> str | None:
    """Name the process that listens on a port: "pid 12 (java)"; None when it is unknown."""
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        if (
            connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr.port == port
            and connection.pid
        ):
            try:
                return f"pid {connection.pid} ({psutil.Process(connection.pid).name()})"
            except psutil.Error:
                return f"pid {connection.pid}"
    return None


def own_host_name() -> str:
    """Return the name that clients connect to where a listener binds every interface.

    Kafka: InetAddress.getLocalHost.getCanonicalHostName. "localhost" on a machine that cannot
    resolve its own name.
    """
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        return "localhost"
    try:
        return socket.gethostbyaddr(address)[0]
    except OSError:
        return address


def addresses_of(host: str) -> set[str]:
    """Return the addresses of a host; empty when the name is unknown."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError:
        return set()


def random_uuid() -> Uuid:
    """Return a random (version 4) id whose text does not begin with a dash, like a flag."""
    return Uuid.drawn(lambda: uuid4().bytes)


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


def notify(*states: str) -> None:
    """Send states (`READY=1`, `STOPPING=1`, `STATUS=…`) as sd_notify does.

    $NOTIFY_SOCKET is a path, or an abstract name after an `@`; without it nothing is sent.
    """
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto("\n".join(states).encode(), address)
