"""Notifies the system's service manager (systemd) that a node serves or stops.

Kafka: none.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress


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
