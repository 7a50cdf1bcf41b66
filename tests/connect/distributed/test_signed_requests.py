"""Requests between workers, from whoever has no key."""

from __future__ import annotations

import http.client
import socket
from base64 import b64encode
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect.distributed.exchange import exchange
from ottla.connect.distributed.forwarding import DistributedApi
from ottla.connect.distributed.signing import SessionKey, sign
from ottla.connect.errors import ConnectException
from ottla.connect.runtime.rest_access import RestAccess
from ottla.http import host
from ottla.http.host import HttpHost
from tests.connect.serving import serve
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORGED = sign(SessionKey(b"forged", "HmacSHA256", 0), b"", "HmacSHA256")
LARGE_BYTES = 2 << 20


class Worker:
    """A worker with a key."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {
            "connect.protocol": "sessioned",
            "inter.worker.verification.algorithms": ["HmacSHA256"],
        }

    def call(self, step: Callable[[Any], Any]) -> Future[Any]:
        """Answer at once."""
        answer: Future[Any] = Future()
        answer.set_result(step(SimpleNamespace(session_key=SessionKey(b"key", "HmacSHA256", 0))))
        return answer


@pytest.fixture(name="port")
def _port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(host, "REQUEST_LIMIT_S", WAIT_S)
    worker: Any = Worker()
    server = HttpHost("127.0.0.1", 0, "the API")
    serve(server, DistributedApi(worker, "cluster"))
    yield server.address[1]
    server.stop()


def send(port: int, size: int, path: str = "/connectors/c/tasks") -> int:
    """Send a body with a signature of another key; return the status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    connection.request("POST", path, b"x" * size, FORGED)
    status = connection.getresponse().status
    connection.close()
    return status


def begin_large(port: int, stack: ExitStack) -> int | None:
    """Send the head of a large request; return the status, None while the body is awaited."""
    head = "POST /connectors/c/tasks HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked"
    headers = "".join(f"\r\n{name}: {it}" for name, it in FORGED.items())
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    client.sendall(f"{head}{headers}\r\n\r\n".encode())
    client.settimeout(0.2)
    try:
        return int(client.recv(12)[9:])
    except TimeoutError:
        return None


def test_few_large_bodies_are_read_at_a_time(port: int) -> None:
    """A signature is known to be forged only at the end; small ones are answered meanwhile."""
    assert send(port, LARGE_BYTES) == 403
    with ExitStack() as stack:
        wait_for(lambda: begin_large(port, stack) == 503)
        assert send(port, 10) == 403
    wait_for(lambda: send(port, LARGE_BYTES) == 403)


def test_a_name_with_a_slash_has_the_same_limit(port: int) -> None:
    """Its tasks' settings are as long as others'."""
    assert send(port, LARGE_BYTES, "/connectors/a%2Fb/tasks") == 403


@pytest.mark.parametrize("is_signed", [True, False])
def test_every_route_has_the_login_and_the_roles(*, is_signed: bool) -> None:
    """Without a login nothing is answered but signed requests, and readers change nothing."""
    worker: Any = Worker()
    api = DistributedApi(worker, "cluster")
    server = HttpHost("127.0.0.1", 0, "the API")
    users = {"reader": "canary"}
    rules = RestAccess(users, frozenset(users), is_local=False, internal_is_signed=is_signed)
    server.start(partial(api.pages, rules))
    server.begin()
    login = {"authorization": f"Basic {b64encode(b'reader:canary').decode()}"}

    def status(method: str, path: str, headers: dict[str, str]) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.address[1], timeout=WAIT_S)
        connection.request(method, path, b"{}", {**headers, "content-type": "application/json"})
        code = connection.getresponse().status
        connection.close()
        return code

    routes = [(method, f"/{path.replace('*', '0')}") for method, path in api._routes]
    assert len(routes) > 20
    for method, path in [*routes, ("GET", "/metrics"), ("PUT", "/connectors/0/fence")]:
        is_open = is_signed and (method, path) == ("POST", "/connectors/0/tasks")
        is_unknown = is_signed and path.endswith("/fence")
        expected = 400 if is_open else 404 if is_unknown else 401
        assert status(method, path, {}) == expected, (method, path)
        if method != "GET" and not is_open and not is_unknown:
            assert status(method, path, login) == 403, (method, path)
    server.stop()


def test_what_is_no_answer_of_http_is_an_error_of_the_request() -> None:
    """As of a listener over TLS, or of another service at a worker's old port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(4096)
                client.sendall(b"SSH-2.0\r\n\r\n")

        thread = Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(ConnectException, match="IO Error trying to forward REST request"):
            exchange(url, "GET", "/", b"", {})
        thread.join()
