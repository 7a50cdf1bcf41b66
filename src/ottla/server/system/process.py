"""The process and its machine: limits, names, ports, random ids.

Kafka: what the JVM and its own start scripts ask the system for.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import stat
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil

from ottla.server.system.environment import Limits
from ottla.types import Uuid

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
