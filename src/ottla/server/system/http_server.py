"""An HTTP server with its own thread and event loop.

A node that recovers keeps its loop busy as long as its disks need, and a scrape of ten thousand
partitions is megabytes of text: neither must wait for the other. The socket is bound at once, so
that a port in use is reported first; the library is imported on the thread, after the node has
started or START_DELAY_S have passed.

Kafka: none; the JVM's exporters bring their own server, as Connect brings Jetty.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from starlette.types import ASGIApp

log = logging.getLogger("ottla.http")
START_DELAY_S = 1.0
"""Delay of the import, which would slow the start down; connections wait in the backlog."""
STOP_LIMIT_S = 2.0
_BACKLOG = 128
_KEEP_ALIVE_S = 12
"""Less than usual scrape intervals: a connection must not end just as a request is sent."""


class HttpServer:
    """Serves one ASGI application; `bind`, `start`, then `stop` from any thread."""

    def __init__(self, host: str, port: int) -> None:
        """Bind the port; connections wait in its backlog. OSError when it is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._may_begin = threading.Event()
        self._is_stopping = False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self, make_app: Callable[[], ASGIApp], context: ssl.SSLContext | None = None) -> None:
        """Start the thread; it waits for `node_started`, or a second, then calls make_app().

        With a context it speaks HTTPS only.
        """
        run = partial(self._run, make_app, context)
        self._thread = threading.Thread(target=run, name="ottla-http", daemon=True)
        self._thread.start()

    def node_started(self) -> None:
        """Begin to serve at once."""
        self._may_begin.set()

    def stop(self) -> None:
        """End the server and wait for its thread."""
        with self._lock:
            self._is_stopping = True
            if self._loop is not None and self._stopped is not None:
                self._loop.call_soon_threadsafe(self._stopped.set)
        self._may_begin.set()
        if self._thread is not None:
            self._thread.join(STOP_LIMIT_S)
        self._socket.close()

    def _run(self, make_app: Callable[[], ASGIApp], context: ssl.SSLContext | None) -> None:
        self._may_begin.wait(START_DELAY_S)
        if not self._is_stopping:
            try:
                asyncio.run(self._serve(make_app, context))
            except Exception:
                text = "metrics and probes are no longer served; restart the node to serve them"
                log.exception(text, extra={"event": "http.failed"})

    async def _serve(self, make_app: Callable[[], ASGIApp], context: ssl.SSLContext | None) -> None:
        import uvicorn

        from ottla.server.http.connection import HttpConnection

        stopped = asyncio.Event()
        config = uvicorn.Config(
            make_app(),
            loop="asyncio",
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        # its warnings concern untrusted input, one line for each request
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        config.load()
        config.ssl = context
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        with self._lock:
            self._loop, self._stopped = asyncio.get_running_loop(), stopped
            if self._is_stopping:
                return
        try:
            await server.startup(sockets=[self._socket])
            await stopped.wait()  # the library's own loop would wake ten times a second
            server.should_exit = True
            await server.shutdown(sockets=[self._socket])
        finally:
            with self._lock:
                self._loop = None
