"""Options of listening and accepted sockets.

Kafka: org.apache.kafka.network.SocketServer.Acceptor.openServerSocket.
"""

from __future__ import annotations

import socket

NOTSENT_LOWAT_BYTES = 128 * 1024
"""How much of an answer waits in the kernel, beyond what is on its way to the client.

A buffer that grows takes all of an answer at once, whose pages have left the processor's caches
when they are sent; a bound on the buffer itself would slow down distant clients.
"""
_NOTSENT_LOWAT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)
MIN_BACKLOG = 128
"""A busy loop accepts late, so a short queue would refuse new connections."""


def listen(
    host: str, port: int, backlog: int = 0, send_bytes: int = -1, receive_bytes: int = -1
) -> socket.socket:
    """Return a non-blocking listening socket; OSError when the address cannot be bound.

    Connections inherit the sizes of the buffers; -1 leaves them to the system, which lets them
    grow.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option, size in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
            if size >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        if _NOTSENT_LOWAT is not None:
            sock.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, NOTSENT_LOWAT_BYTES)
        sock.bind((host, port))
        sock.listen(max(backlog, MIN_BACKLOG))
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def configure_accepted(sock: socket.socket) -> None:
    """Set the options of an accepted connection."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
