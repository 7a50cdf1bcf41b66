"""The HTTP host against clients that open connections and ask for nothing."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import logging
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from ottla.config.log_lines import LoggingSettings
from ottla.config.secret import Secret
from ottla.http import host
from ottla.http.host import Access, BasicLogin, HttpHost, Page
from ottla.metrics.families import Spelling
from ottla.server.http import app
from ottla.server.http.app import NodeHealth
from ottla.server.logging.lines import configure_logging
from tests.server.security.certificates import Authority
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.responses import Response

    from ottla.metrics.families import Series

LIMIT_S = 0.05
REQUEST = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"


async def answer(request: Request) -> Response:
    """Answer at once, or at /slow after the time that a request has, or at /never not at all."""
    path = request.url.path
    if path == "/slow":
        loop: Any = asyncio.get_running_loop()
        loop.time = lambda: time.monotonic() + 2 * WAIT_S  # and all timers of before are due
    await asyncio.sleep({"/slow": LIMIT_S, "/never": 3600}.get(path, 0))
    return PlainTextResponse("ok")


async def take(request: Request) -> Response:
    """Read the whole body."""
    return PlainTextResponse(f"{len(await request.body())} ok")


def make_pages() -> list[Page]:
    """Return pages that answer at once, late, never; and one that takes a body."""
    pages = [Page(path, answer) for path in ("/livez", "/slow", "/never")]
    return [
        *pages,
        Page("/put", take, methods=("PUT",)),
        Page("/private", answer, needs_login=True),
    ]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpHost]:
    """Run a server that gives a request as much time as a busy machine may take."""
    monkeypatch.setattr(host, "ANSWER_LIMIT_S", 10 * WAIT_S)
    monkeypatch.setattr(host, "REQUEST_LIMIT_S", WAIT_S)
    running = HttpHost("127.0.0.1", 0, "metrics and probes")
    running.begin()
    running.start(make_pages)
    yield running
    running.stop()


class Client:
    """One connection."""

    def __init__(self, server: HttpHost) -> None:
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
    server: HttpHost, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    """Nothing, half a head, a body that is missing, a second request that stays half: ended."""
    whole = start.startswith(REQUEST)
    monkeypatch.setattr(host, "REQUEST_LIMIT_S", WAIT_S if whole else LIMIT_S)
    client = Client(server)
    client.send(start[: len(REQUEST)])
    if whole:
        assert client.answer().startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(host, "REQUEST_LIMIT_S", LIMIT_S)
        client.send(start[len(REQUEST) :])
    while client.answer():
        pass
    client.close()


def test_an_answer_may_take_longer_than_a_request(server: HttpHost) -> None:
    """Once a request is whole its time is over, and the connection serves another."""
    client = Client(server)
    for request in (REQUEST.replace(b"livez", b"slow"), REQUEST):
        client.send(request)
        assert client.answer().startswith(b"HTTP/1.1 200")
    client.close()


def test_idle_connections_do_not_keep_a_probe_out(server: HttpHost) -> None:
    """Beyond the limit the oldest idle connection is ended, and the probe is answered."""
    idle = [Client(server) for _ in range(host.CONNECTIONS_MAX)]
    probe = Client(server)
    probe.send(REQUEST)
    assert probe.answer().startswith(b"HTTP/1.1 200")
    assert idle[0].answer() == b""
    idle[-1].send(REQUEST)
    assert idle[-1].answer().startswith(b"HTTP/1.1 200")
    for one in (probe, *idle):
        one.close()


def test_handshakes_that_never_end_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit the oldest is ended, in time all; a probe is answered meanwhile."""
    monkeypatch.setattr(host, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(host, "REQUEST_LIMIT_S", WAIT_S)
    authority = Authority()
    location = authority.issue("localhost").write_pem(tmp_path / "keys")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(location)
    trust = ssl.create_default_context(cadata=authority.pair.certificate_pem)
    running = HttpHost("127.0.0.1", 0, "metrics and probes")
    running.begin()
    running.start(make_pages, Access(context))
    silent = [Client(running) for _ in range(6)]
    for client in silent[:3]:
        assert client.answer() == b""
        client.close()
    port = running.address[1]
    probe = http.client.HTTPSConnection("localhost", port, timeout=WAIT_S, context=trust)
    probe.request("GET", "/livez")
    assert probe.getresponse().read() == b"ok"
    probe.close()
    running.stop()
    for client in silent[3:]:
        assert client.answer() == b""
        client.close()


def test_a_handshake_has_the_time_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends nothing is ended by itself."""
    monkeypatch.setattr(host, "REQUEST_LIMIT_S", LIMIT_S)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority().issue("localhost").write_pem(tmp_path / "keys"))
    running = HttpHost("127.0.0.1", 0, "metrics and probes")
    running.begin()
    running.start(make_pages, Access(context))
    client = Client(running)
    assert client.answer() == b""
    client.close()
    running.stop()


def test_the_host_goes_on_when_the_system_has_no_more_files(
    server: HttpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An accept that fails is tried again."""
    monkeypatch.setattr(host, "_ACCEPT_RETRY_S", LIMIT_S)
    failures = [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()]

    def ask() -> None:
        client = Client(server)
        client.send(REQUEST)
        assert client.answer().startswith(b"HTTP/1.1 200")
        client.close()

    ask()
    loop: Any = server._loop
    accept = loop.sock_accept

    async def failing(listening: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return await accept(listening)

    loop.sock_accept = failing
    for _ in range(4):
        ask()
    assert not failures


def test_an_idle_connection_goes_before_one_that_waits(
    server: HttpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers under way stay; when all are, the oldest of them gives its place to a probe."""
    monkeypatch.setattr(host, "CONNECTIONS_MAX", 3)
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
        node_pages = app.NodePages(health, Spelling.CLASSIC)
        request = Request({"type": "http", "headers": []})
        first = asyncio.create_task(node_pages.metrics(request))
        await asyncio.sleep(0)
        refused, probe = await node_pages.metrics(request), await node_pages.livez(request)
        may_go_on.set()
        answers = [refused, probe, await first, await node_pages.metrics(request)]
        return [one.status_code for one in answers]

    assert asyncio.run(run()) == [503, 200, 200, 200]


def test_untrusted_clients_and_the_library_write_no_lines_of_their_own(
    server: HttpHost, capsys: pytest.CaptureFixture[str]
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
    failed = HttpHost("127.0.0.1", 0, "metrics and probes")
    failed.begin()
    failed.start(make_pages)
    assert failed._thread is not None
    failed._thread.join(WAIT_S)
    failed.stop()
    assert "metrics and probes are no longer served" in caplog.text


@pytest.mark.parametrize(
    ("size", "chunked", "status"), [(1000, False, 200), (1001, False, 413), (1001, True, 413)]
)
def test_a_body_is_bounded(
    server: HttpHost, monkeypatch: pytest.MonkeyPatch, size: int, *, chunked: bool, status: int
) -> None:
    """A body of more bytes is refused, whether or not its length is announced."""
    monkeypatch.setattr(host, "BODY_BYTES_MAX", 1000)
    connected = http.client.HTTPConnection(*server.address, timeout=WAIT_S)
    body: Any = iter([b"x"] * size) if chunked else b"x" * size
    connected.request("PUT", "/put", body, encode_chunked=chunked)
    assert connected.getresponse().status == status
    connected.close()


def test_an_answer_that_does_not_begin_is_given_up(
    server: HttpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client learns of it; a connection must not wait for ever."""
    monkeypatch.setattr(host, "ANSWER_LIMIT_S", 0.01)
    client = Client(server)
    client.send(REQUEST.replace(b"livez", b"never"))
    assert client.answer().startswith(b"HTTP/1.1 503")
    client.close()


def test_pages_that_are_not_public_need_a_login_for_other_machines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On all interfaces they are served with a login only, and refused in the log without one."""
    caplog.set_level(logging.ERROR, logger="ottla.http")
    monkeypatch.setattr(logging.getLogger("ottla"), "propagate", True)
    for login in (None, BasicLogin("me", Secret("pw"))):
        host = HttpHost("0.0.0.0", 0, "pages")
        host.begin()
        host.start(make_pages, Access(login=login))
        if login is None:
            assert host._thread is not None
            host._thread.join(WAIT_S)
            assert "set a login, or listen on 127.0.0.1" in caplog.text
        else:
            connected = http.client.HTTPConnection("127.0.0.1", host.address[1], timeout=WAIT_S)
            for headers, status in (({}, 401), ({"Authorization": "Basic bWU6cHc="}, 200)):
                connected.request("GET", "/private", headers=headers)
                answered = connected.getresponse()
                answered.read()
                assert answered.status == status
            connected.close()
        host.stop()


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("localhost:8083", 200),
        ("LOCALHOST", 200),
        ("connect.localhost", 200),
        ("127.0.0.1", 200),
        ("[::1]:8083", 200),
        ("attacker.example:8083", 403),
        ("localhost.attacker.example", 403),
        ("127.0.0.1.attacker.example", 403),
        ("10.0.0.1", 403),
        ("[::1", 403),
    ],
)
def test_without_a_login_other_names_of_this_machine_are_refused(
    server: HttpHost, name: str, status: int
) -> None:
    """A page of the web whose name leads here reaches what is public only."""
    connected = http.client.HTTPConnection(*server.address, timeout=WAIT_S)
    for path, expected in (("/private", status), ("/livez", 200)):
        connected.request("GET", path, headers={"Host": name})
        answered = connected.getresponse()
        answered.read()
        assert answered.status == expected
    connected.close()


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1:8083", 200),
        ("https://[::1]", 200),
        ("https://attacker.example", 403),
        ("http://localhost.attacker.example", 403),
        ("null", 403),
        ("localhost", 403),
        ("", 403),
    ],
)
def test_without_a_login_requests_of_other_pages_are_refused(
    server: HttpHost, origin: str, status: int
) -> None:
    """A browser sends some of them without a question before, and names their page."""
    connected = http.client.HTTPConnection(*server.address, timeout=WAIT_S)
    for path, expected in (("/private", status), ("/livez", 200)):
        connected.request("GET", path, headers={"Origin": origin})
        answered = connected.getresponse()
        answered.read()
        assert answered.status == expected
    connected.close()
