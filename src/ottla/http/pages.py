"""Pages as an ASGI application: login, limits on the request, compression.

Kafka: none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ottla.http.host import BasicLogin, Page

BODY_BYTES_MAX: Final = 1 << 20
"""Largest body of a request; JSON documents of settings are far smaller."""
ANSWER_LIMIT_S: Final = 30.0
"""Time until an answer begins; the slowest page waits ten seconds for a node's loop."""
UNAUTHORIZED, TOO_LARGE, UNAVAILABLE = 401, 413, 503


def make_app(pages: Sequence[Page], login: BasicLogin | None) -> Starlette:
    """Return the application; called on the host's thread."""
    return Starlette(
        routes=[
            Route(page.path, _guarded(page, login), methods=list(page.methods)) for page in pages
        ],
        middleware=[
            Middleware(_RequestLimits),
            Middleware(GZipMiddleware, compresslevel=1),
        ],
    )


def _guarded(page: Page, login: BasicLogin | None) -> Callable[[Request], Awaitable[Response]]:
    if login is None or not page.needs_login:
        return page.answer

    async def answer(request: Request) -> Response:
        if login.admits(request.headers.get("authorization", "")):
            return await page.answer(request)
        challenge = {"www-authenticate": 'Basic realm="ottla", charset="UTF-8"'}
        return PlainTextResponse("a login is required\n", UNAUTHORIZED, headers=challenge)

    return answer


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

        async def bounded_receive() -> Message:
            nonlocal byte_count
            message = await receive()
            byte_count += len(message.get("body", b""))
            if byte_count > BODY_BYTES_MAX:
                raise _TooLarge
            return message

        async def noticed_send(message: Message) -> None:
            nonlocal has_begun
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
