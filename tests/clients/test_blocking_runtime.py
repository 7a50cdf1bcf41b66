"""A client in the calling thread, over blocking sockets: failures of connections, and timeouts."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.blocking_runtime import BlockingRuntime
from ottla.clients.client import ANY_NODE
from ottla.clients.settings import COMMON, read_settings
from ottla.errors import ErrorCode, KafkaError, SslAuthenticationError
from ottla.protocol.apis.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Give a listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def runtime_for(address: str, **settings: Any) -> BlockingRuntime:
    """Return a runtime with one bootstrap server."""
    return BlockingRuntime(read_settings(COMMON, {"bootstrap.servers": address}, settings))


def address_of(server: socket.socket) -> str:
    """Return a socket's address as HOST:PORT."""
    host, port = server.getsockname()
    return f"{host}:{port}"


def failure_of(runtime: BlockingRuntime, **options: Any) -> KafkaError:
    """Return the error of one request."""
    with runtime, pytest.raises(KafkaError) as caught:
        runtime.wait_for(runtime.client.send(ANY_NODE, MetadataRequest(topics=None), **options))
    return caught.value


def answered_by(server: socket.socket, answer: Callable[[socket.socket], None]) -> threading.Thread:
    """Serve one connection in a thread."""

    def serve() -> None:
        taken = server.accept()[0]
        with taken:
            answer(taken)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_handshake_that_fails_is_one_line(server: socket.socket) -> None:
    """A port without TLS: the error names the handshake, and no socket is left open."""

    def answer(taken: socket.socket) -> None:
        taken.sendall(b"no TLS here\r\n\r\n")
        taken.recv(1 << 16)

    thread = answered_by(server, answer)
    runtime = runtime_for(address_of(server), security_protocol="SSL", reconnect_backoff_ms=5000)
    error = failure_of(runtime, timeout_ms=60_000)
    thread.join()
    assert isinstance(error, SslAuthenticationError)
    assert "the TLS handshake failed" in error.message
    assert error.message.endswith("the listener may be a PLAINTEXT one, check security_protocol")


def test_an_invalid_host_name_is_an_error_of_the_request() -> None:
    """A name that the resolver rejects before it sends anything."""
    error = failure_of(runtime_for("a..b:9092"))
    assert error.code == ErrorCode.NETWORK_EXCEPTION
    assert "label" in error.message


def test_a_frame_of_an_impossible_size_closes_the_connection(server: socket.socket) -> None:
    """No memory is allocated for it."""

    def answer(taken: socket.socket) -> None:
        taken.recv(1 << 16)
        taken.sendall(b"\x7f\xff\xff\xff")
        taken.recv(1 << 16)

    thread = answered_by(server, answer)
    error = failure_of(runtime_for(address_of(server)))
    thread.join()
    assert "frame of 2147483647 bytes" in error.message


def test_a_silent_broker_times_out(server: socket.socket) -> None:
    """The request's own limit, and the deadline of a wait."""
    error = failure_of(runtime_for(address_of(server)), timeout_ms=50)
    assert error.code == ErrorCode.REQUEST_TIMED_OUT
    with runtime_for(address_of(server)) as runtime:
        pending = runtime.client.send(ANY_NODE, MetadataRequest(topics=None))
        with pytest.raises(KafkaError) as caught:
            runtime.wait_for(pending, runtime.now_ms() + 50)
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
