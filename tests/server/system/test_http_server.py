"""The HTTP server against clients that open connections and ask for nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from starlette.requests import Request

from ottla.config.log_lines import LoggingSettings
from ottla.metrics.families import Spelling
from ottla.server.http import app, connection
from ottla.server.http.health import NodeHealth
from ottla.server.logging.lines import configure_logging
from ottla.server.system.http_server import HttpServer
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

    from ottla.metrics.families import Series

LIMIT_S = 0.05
REQUEST = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"


async def application(scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer at once, or at /slow after the time that a request has, or at /never not at all."""
    if scope["path"] == "/slow":
        loop: Any = asyncio.get_running_loop()
        loop.time = lambda: time.monotonic() + 2 * WAIT_S  # and all timers of before are due
    await asyncio.sleep({"/slow": LIMIT_S, "/never": 3600}.get(scope["path"], 0))
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """Run a server that gives a request as much time as a busy machine may take."""
    monkeypatch.setattr(connection, "REQUEST_LIMIT_S", WAIT_S)
    running = HttpServer("127.0.0.1", 0)
    running.node_started()
    running.start(lambda: application)
    yield running
    running.stop()


class Client:
    """One connection."""

    def __init__(self, server: HttpServer) -> None:
        self._socket = socket.create_connection(server.address, timeout=2 * WAIT_S)

    def send(self, data: bytes) -> None:
        """Send these bytes; the server may already have ended the connection."""
        with suppress(ConnectionError):
            self._socket.sendall(data)

    def answer(self) -> bytes:
        """Return the next answer; less when the server ends the connection before."""
        data = b""
        while not data.endswith(b"ok") and (more := self._read()):
            data += more
        return data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read(self) -> bytes:
        try:
            return self._socket.recv(4096)
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize(
    "start", [b"", b"GET /livez", REQUEST[:-2] + b"content-length: 9\r\n\r\n", REQUEST + b"GET"]
)
def test_a_connection_without_a_whole_request_is_ended(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    """Nothing, half a head, a body that is missing, a second request that stays half: ended."""
    whole = start.startswith(REQUEST)
    monkeypatch.setattr(connection, "REQUEST_LIMIT_S", WAIT_S if whole else LIMIT_S)
    client = Client(server)
    client.send(start[: len(REQUEST)])
    if whole:
        assert client.answer().startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(connection, "REQUEST_LIMIT_S", LIMIT_S)
        client.send(start[len(REQUEST) :])
    while client.answer():
        pass
    client.close()


def test_an_answer_may_take_longer_than_a_request(server: HttpServer) -> None:
    """Once a request is whole its time is over, and the connection serves another."""
    client = Client(server)
    for request in (REQUEST.replace(b"livez", b"slow"), REQUEST):
        client.send(request)
        assert client.answer().startswith(b"HTTP/1.1 200")
    client.close()


def test_idle_connections_do_not_keep_a_probe_out(server: HttpServer) -> None:
    """Beyond the limit the oldest idle connection is ended, and the probe is answered."""
    idle = [Client(server) for _ in range(connection.CONNECTIONS_MAX)]
    probe = Client(server)
    probe.send(REQUEST)
    assert probe.answer().startswith(b"HTTP/1.1 200")
    assert idle[0].answer() == b""
    idle[-1].send(REQUEST)
    assert idle[-1].answer().startswith(b"HTTP/1.1 200")
    for one in (probe, *idle):
        one.close()


def test_an_idle_connection_goes_before_one_that_waits(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers under way stay; when all are, the oldest of them gives its place to a probe."""
    monkeypatch.setattr(connection, "CONNECTIONS_MAX", 3)
    never = REQUEST.replace(b"livez", b"never")
    clients = []
    for _ in range(3):
        clients.append(Client(server))
        clients[-1].send(REQUEST)
        assert clients[-1].answer()
    for client in clients[:2]:
        client.send(never)
    clients.append(Client(server))
    clients[-1].send(REQUEST)
    assert clients[-1].answer().startswith(b"HTTP/1.1 200")
    assert clients[2].answer() == b""
    clients[-1].send(never)
    clients.append(Client(server))
    clients[-1].send(REQUEST)
    assert clients[-1].answer().startswith(b"HTTP/1.1 200")
    assert clients[0].answer() == b""
    for one in clients:
        one.close()


def test_scrapes_are_bounded_and_probes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """One scrape more than may be gathered at a time is refused; probes are answered meanwhile."""
    monkeypatch.setattr(app, "SCRAPES_MAX", 1)

    async def run() -> list[int]:
        nothing: Any = None
        health = NodeHealth(nothing, nothing, nothing)
        may_go_on = asyncio.Event()

        async def gather() -> list[Series]:
            await may_go_on.wait()
            return []

        monkeypatch.setattr(health, "gather", gather)
        pages = app.Pages(health, Spelling.CLASSIC)
        request = Request({"type": "http", "headers": []})
        first = asyncio.create_task(pages.metrics(request))
        await asyncio.sleep(0)
        refused, probe = await pages.metrics(request), await pages.livez(request)
        may_go_on.set()
        answers = [refused, probe, await first, await pages.metrics(request)]
        return [one.status_code for one in answers]

    assert asyncio.run(run()) == [503, 200, 200, 200]


def test_untrusted_clients_and_the_library_write_no_lines_of_their_own(
    server: HttpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line for untrusted input, and the library's errors are JSON like all others."""
    names = ("ottla", "uvicorn")
    before = [(one := logging.getLogger(name), one.handlers[:], one.propagate) for name in names]
    level = logging.getLogger("ottla").level
    configure_logging(LoggingSettings.parse({"log.format": "json"}))
    try:
        client = Client(server)
        client.send(b"\0bad\r\n\r\n")
        assert client.answer().startswith(b"HTTP/1.1 400")
        client.close()
        assert capsys.readouterr().err == ""
        logging.getLogger("uvicorn.error").error("it broke")
        assert json.loads(capsys.readouterr().err)["message"] == "it broke"
    finally:
        logging.getLogger("ottla").setLevel(level)
        for logger, handlers, propagate in before:
            logger.handlers[:], logger.propagate = handlers, propagate


def test_a_server_that_cannot_start_is_stopped_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its loop is closed by then; the node that stops must not meet that."""

    async def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("no memory left")

    monkeypatch.setattr(uvicorn.Server, "startup", fail)
    caplog.set_level(logging.ERROR, logger="ottla.http")
    monkeypatch.setattr(logging.getLogger("ottla"), "propagate", True)
    failed = HttpServer("127.0.0.1", 0)
    failed.node_started()
    failed.start(lambda: application)
    assert failed._thread is not None
    failed._thread.join(WAIT_S)
    failed.stop()
    assert "metrics and probes are no longer served" in caplog.text
