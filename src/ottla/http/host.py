"""The HTTP host: its thread, its connections with their limits, and its pages with logins.

A node that recovers keeps its loop busy as long as its disks need, and a scrape of ten thousand
partitions is megabytes of text: neither must wait for the other. The socket is bound at once, so
that a port in use is reported first; the library is imported on the thread, after `begin` or when
START_DELAY_S have passed.

Kafka: none; the JVM's exporters bring their own server, as Connect brings Jetty.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
from base64 import b64encode
from contextlib import suppress
from functools import partial
from hmac import compare_digest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ottla.config.secret import Secret

REQUEST_LIMIT_S = 5.0
"""Time limit for a request to arrive, for the first one of a connection to begin, and for a TLS
handshake."""
CONNECTIONS_MAX = 64
"""And as many more whose TLS handshake has not ended."""
_UNFINISHED = {h11.IDLE, h11.SEND_BODY, h11.ERROR}
"""States of the client before its request is complete."""


class HttpConnection(H11Protocol):
    """One connection, on the server's loop."""

    _since_s = 0.0
    """Start of its idle time, or of the response that is being written."""
    _request_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as theirs
        """Count the connection, close another one at the limit, and wait for a request."""
        super().connection_made(transport)
        self._since_s = self.loop.time()
        self._watch()
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; a request that began must be complete in time."""
        was_idle = self.is_idle
        super().data_received(data)
        if was_idle and not self.is_idle:
            self._since_s = self.loop.time()
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._since_s = self.loop.time()
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget_timer()
        super().connection_lost(exc)

    def end(self) -> None:
        """Close at once; the client may lose the end of an answer."""
        self._forget_timer()
        self.connections.discard(self)
        self.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no response is being written."""
        return self.cycle is None or self.cycle.response_complete

    def _watch(self) -> None:
        if self.conn.their_state not in _UNFINISHED:
            self._forget_timer()
        elif self._request_timer is None and self.timeout_keep_alive_task is None:
            # further bytes do not restart it: the limit is for the whole request
            self._request_timer = self.loop.call_later(REQUEST_LIMIT_S, self.end)

    def _forget_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _make_room(self) -> None:
        """Close the connection that has been idle longest, else that with the oldest response."""
        others: list[Any] = [other for other in self.connections if other is not self]
        min(others, key=_order).end()


def _order(connection: HttpConnection) -> tuple[bool, float]:
    return not connection.is_idle, connection._since_s  # noqa: SLF001 - of the same module


BODY_BYTES_MAX: Final = 1 << 20
"""Largest body of a request; JSON documents of settings are far smaller."""
_BODY_LIMIT: Final = "ottla.body_bytes_max"
"""The key of the limit of a page's own in a request's scope."""
ANSWER_LIMIT_S: Final = 30.0
"""Time until an answer begins; the slowest page waits ten seconds for a node's loop."""
UNAUTHORIZED, FORBIDDEN, TOO_LARGE, UNAVAILABLE = 401, 403, 413, 503


def make_app(pages: Sequence[Page], login: BasicLogin | None) -> Starlette:
    """Return the application; called on the host's thread."""
    return Starlette(
        routes=[
            Route(page.path, _limited(page, _guarded(page, login)), methods=list(page.methods))
            for page in pages
        ],
        middleware=[
            Middleware(_RequestLimits),
            Middleware(GZipMiddleware, compresslevel=1),
        ],
    )


def _limited(
    page: Page, answer: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return an answer whose request may have the page's own size."""
    if page.body_bytes_max is None:
        return answer

    async def limited(request: Request) -> Response:
        request.scope[_BODY_LIMIT] = page.body_bytes_max
        return await answer(request)

    return limited


def _guarded(page: Page, login: BasicLogin | None) -> Callable[[Request], Awaitable[Response]]:
    if not page.needs_login or (login is None and page.is_public):
        return page.answer

    async def answer(request: Request) -> Response:
        if login is None:
            if not names_this_machine(request.headers.get("host", "localhost")):
                text = "the Host header names another machine: use localhost or 127.0.0.1\n"
                return PlainTextResponse(text, FORBIDDEN)
            # a browser sends a POST without a body, or with a text, for any page of the web
            origin = request.headers.get("origin", "http://localhost")
            if not names_this_machine(origin.partition("://")[2]):
                text = "the Origin header names a page of another machine\n"
                return PlainTextResponse(text, FORBIDDEN)
            return await page.answer(request)
        if login.admits(request.headers.get("authorization", "")):
            return await page.answer(request)
        challenge = {"www-authenticate": 'Basic realm="ottla", charset="UTF-8"'}
        return PlainTextResponse("a login is required\n", UNAUTHORIZED, headers=challenge)

    return answer


def names_this_machine(header: str) -> bool:
    """Whether the host of a header is a name or address that no other machine can have.

    A page of the web can have its own name lead to this machine, and a browser then lets it send
    requests to any port (DNS rebinding); the header still has that name.
    """
    try:
        name = urlsplit(f"//{header}").hostname or ""
        return name.endswith(".localhost") or name == "localhost" or is_loopback(name)
    except ValueError:  # a name, or none
        return False


class _TooLarge(Exception):
    """A body has more bytes than a request may have."""


class _RequestLimits:
    """Bounds a request's body and the time until its answer begins.

    The time for the request to arrive is bounded by its connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        byte_count = 0
        has_begun = False

        def is_too_large() -> bool:
            return bool(byte_count > scope.get(_BODY_LIMIT, BODY_BYTES_MAX))

        async def bounded_receive() -> Message:
            nonlocal byte_count
            message = await receive()
            byte_count += len(message.get("body", b""))
            if is_too_large():
                raise _TooLarge
            return message

        async def noticed_send(message: Message) -> None:
            nonlocal has_begun
            if is_too_large():
                raise _TooLarge  # the answer of a page that took it for an error of its own
            has_begun = True
            limit.reschedule(None)  # a slow client may take its time for the answer
            await send(message)

        try:
            async with asyncio.timeout(ANSWER_LIMIT_S) as limit:
                await self._app(scope, bounded_receive, noticed_send)
        except (_TooLarge, TimeoutError) as error:
            if has_begun:
                raise
            is_large = isinstance(error, _TooLarge)
            text = "the body is too large\n" if is_large else "no answer in time\n"
            status = TOO_LARGE if is_large else UNAVAILABLE
            await PlainTextResponse(text, status)(scope, receive, send)


log = logging.getLogger("ottla.http")
START_DELAY_S = 1.0
"""Delay of the import: it would slow a node's start; connections wait in the backlog."""
STOP_LIMIT_S = 2.0
_BACKLOG = 128
_ACCEPT_RETRY_S = 1.0
"""After an error of the system, as too many open files, which stays for a while."""
_KEEP_ALIVE_S = 12
"""Less than usual scrape intervals: a connection must not end just as a request is sent."""


class Page(NamedTuple):
    """One path and who answers it."""

    path: str
    answer: Callable[[Request], Awaitable[Response]]
    methods: tuple[str, ...] = ("GET",)
    needs_login: bool = False
    """Asks for the host's login; without one, a page that is not public is for local names only."""
    is_public: bool = False
    """May be served to other machines by a host without a login."""
    body_bytes_max: int | None = None
    """Largest body of a request, `BODY_BYTES_MAX` by default."""


class BasicLogin(NamedTuple):
    """A user and a password (RFC 7617)."""

    username: str
    password: Secret

    def admits(self, header: str) -> bool:
        """Whether an Authorization header contains this login; compared in constant time."""
        expected = b64encode(f"{self.username}:{self.password.reveal()}".encode())
        scheme, _, credentials = header.partition(" ")
        is_same = compare_digest(credentials.strip().encode(), expected)
        return scheme.lower() == "basic" and is_same


class Access(NamedTuple):
    """How clients come in: over HTTPS with a context, after a login with one."""

    context: ssl.SSLContext | None = None
    login: BasicLogin | None = None


class UnsafePages(Exception):
    """Pages that are not public would be served to other machines without a login."""


class HttpHost:
    """Serves pages on a port; `start`, `begin`, then `stop` from any thread."""

    def __init__(self, host: str, port: int, content: str) -> None:
        """Bind the port; connections wait in its backlog. OSError when it is taken.

        `content` names the pages in a log line, should they fail.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            reason, _, _ = (error.strerror or str(error)).partition(" (while attempting to bind")
            raise OSError(error.errno, reason) from None  # the caller names the address itself
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._content = content
        self._may_begin = threading.Event()
        self._is_stopping = False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    def start(self, make_pages: Callable[[], Sequence[Page]], access: Access | None = None) -> None:
        """Start the thread; it waits for `begin`, or a second, then calls make_pages()."""
        arguments = (make_pages, access or Access())
        self._thread = threading.Thread(
            target=self._run, args=arguments, name="ottla-http", daemon=True
        )
        self._thread.start()

    def begin(self) -> None:
        """Begin to serve at once."""
        self._may_begin.set()

    def stop(self) -> None:
        """End the host and wait for its thread."""
        with self._lock:
            self._is_stopping = True
            if self._loop is not None and self._accepting is not None:
                self._loop.call_soon_threadsafe(self._accepting.cancel)
        self._may_begin.set()
        if self._thread is not None:
            self._thread.join(STOP_LIMIT_S)
        self._socket.close()

    def _run(self, make_pages: Callable[[], Sequence[Page]], access: Access) -> None:
        self._may_begin.wait(START_DELAY_S)
        if not self._is_stopping:
            try:
                asyncio.run(self._serve(make_pages(), access))
            except Exception:
                text = f"{self._content} are no longer served; restart the process to serve them"
                log.exception(text, extra={"event": "http.failed"})

    async def _serve(self, pages: Sequence[Page], access: Access) -> None:
        private = [page.path for page in pages if not page.is_public]
        if private and access.login is None and not is_loopback(self.address[0]):
            raise UnsafePages(
                f"{', '.join(private)}: other machines reach {self.address[0]}; set a login, or "
                "listen on 127.0.0.1"
            )
        config = uvicorn.Config(
            make_app(pages, access.login),
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
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        loop = asyncio.get_running_loop()
        accepting = loop.create_task(self._accept(server, access.context))
        with self._lock:
            self._loop, self._accepting = loop, accepting
            if self._is_stopping:
                return
        try:
            await server.startup(sockets=[])
            with suppress(asyncio.CancelledError):  # `stop`
                await accepting  # the library's own loop would wake ten times a second
            server.should_exit = True
            await server.shutdown(sockets=[self._socket])
        finally:
            with self._lock:
                self._loop = None

    async def _accept(self, server: uvicorn.Server, context: ssl.SSLContext | None) -> None:
        """Accept connections; the oldest handshake ends when there are too many.

        The library and the loop count a connection over TLS only when it is secured, and clients
        that never end a handshake would take all the files of the process.
        """
        loop = asyncio.get_running_loop()
        make = partial(
            HttpConnection,
            config=server.config,
            server_state=server.server_state,
            app_state=server.lifespan.state,
        )
        limit_s = None if context is None else REQUEST_LIMIT_S
        handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._socket.setblocking(False)

        async def begin(accepted: socket.socket) -> None:
            with suppress(OSError):  # of an untrusted client
                await loop.connect_accepted_socket(
                    make, accepted, ssl=context, ssl_handshake_timeout=limit_s
                )

        while True:
            try:
                accepted, _ = await loop.sock_accept(self._socket)
            except ConnectionError:
                continue  # it is closed again
            except OSError:
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            task = loop.create_task(begin(accepted))
            handshakes[task] = accepted
            task.add_done_callback(handshakes.pop)
            for oldest in islice(handshakes.values(), max(len(handshakes) - CONNECTIONS_MAX, 0)):
                with suppress(OSError):  # it ends already
                    oldest.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(0)  # the others' turn: an accept that need not wait has none


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an IP address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
