#!/usr/bin/env python3
"""Send bytes to a secured node from clients that never log in, and check what comes of it.

    scripts/fuzz_login.py --bytes 10000000 --seed 1

Listeners with SASL_PLAINTEXT, SSL and SASL_SSL get logins in wrong orders with flipped bytes, false
lengths and cut ends, handshakes of TLS with the same, and noise; over SASL_SSL the logins come
within TLS, too. No connection may log in, a client with a password must be served all the time, the
node's log have no error, memory stay bounded, and no connection stay open. `--seed` and `--bytes`
replay a failure.
"""

from __future__ import annotations

import argparse
import json
import logging
import socket
import ssl
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ottla import Admin
from ottla.protocol import frames
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.security.sasl.oauthbearer import first_message
from ottla.testing.cluster import Cluster
from tests.security.provider import running_provider
from tests.security.tokens import signed
from tests.server.security.certificates import Authority

PASSWORD = "the password that no seed finds"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "")
LISTENERS = ("LOGIN", "TLS", "SECURE")
HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\x10\0\0")
WITNESS_EACH = 300
"""Connections between two requests of the client that logs in."""
WAIT_S = 0.02
MEMORY_LIMIT_BYTES = 200 << 20
URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


class Broken(AssertionError):
    """A violation by the node."""


class Log(logging.Handler):
    """Counts errors and logins in the node's log."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.errors: Counter[str] = Counter()
        self.logins = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line."""
        if record.levelno >= logging.ERROR:
            self.errors[record.getMessage()[:200]] += 1
        self.logins += getattr(record, "event", "") == "login"


def settings(path: Path, keys_url: str) -> dict[str, str]:
    """Return the node's settings."""
    authority = Authority()
    (path / "ca.pem").write_text(authority.pair.certificate_pem)
    jaas = f'a.Plain required user_alice="{PASSWORD}";'
    return {
        "listeners": ",".join(
            f"{one}://127.0.0.1:0" for one in (*LISTENERS, "INSIDE", "CONTROLLER")
        ),
        "listener.security.protocol.map": (
            "LOGIN:SASL_PLAINTEXT,TLS:SSL,SECURE:SASL_SSL,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS[:4]),
        "listener.name.login.plain.sasl.jaas.config": jaas,
        "listener.name.secure.plain.sasl.jaas.config": jaas,
        "listener.name.tls.ssl.client.auth": "required",
        "sasl.oauthbearer.jwks.endpoint.url": keys_url,
        "sasl.oauthbearer.expected.audience": "kafka",
        URLS: keys_url,
        "connection.failed.authentication.delay.ms": "0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("node").write_pem(path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(path / "ca.pem"),
    }


class Bytes:
    """Seeded bytes of clients that do not log in."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self._hello = _client_hello()
        self._token = signed(aud="others")

    def login(self) -> bytes:
        """Return some frames of a login in any order, most of them sound."""
        steps = [self._step() for _ in range(self.rng.randrange(1, 7))]
        return self._mutated(bytearray(b"".join(steps)))

    def handshake(self) -> bytes:
        """Return a TLS handshake's begin, or noise."""
        rng = self.rng
        if rng.random() < 0.3:
            return rng.randbytes(rng.randrange(1, 400))
        return self._mutated(bytearray(self._hello + rng.randbytes(rng.choice((0, 0, 9, 200)))))

    def _step(self) -> bytes:
        rng = self.rng
        kind = rng.randrange(8)
        if kind == 0:
            versions = ApiVersionsRequest(client_software_name="f", client_software_version="1")
            return _frame(versions, rng.choice((0, 3, 4)))
        if kind in {1, 2}:
            handshake = SaslHandshakeRequest(mechanism=rng.choice(MECHANISMS))
            return _frame(handshake, rng.choice((0, 1)))
        if kind == 3:
            return _frame(MetadataRequest(topics=None), 9)
        token = self._token_bytes()
        if kind == 4:
            return len(token).to_bytes(4, "big") + token
        return _frame(SaslAuthenticateRequest(auth_bytes=token), rng.choice((0, 1, 2)))

    def _token_bytes(self) -> bytes:
        rng = self.rng
        word = rng.randbytes(6).hex()
        return rng.choice(
            (
                f"\0alice\0{word}".encode(),
                f"n,,n=alice,r={word}".encode(),
                f"n,,n={word},r={word},tokenauth=true".encode(),
                f"c=biws,r={word},p={word}".encode(),
                first_message(self._token),
                first_message(word),
                b"\x01",
                b"",
                rng.randbytes(rng.randrange(300)),
            )
        )

    def _mutated(self, data: bytearray) -> bytes:
        rng = self.rng
        for _ in range(rng.choice((0, 1, 1, 2, 5))):
            place = rng.randrange(len(data) + 1)
            kind = rng.randrange(4)
            if kind == 0:
                del data[place:]
            elif kind == 1:
                data[place : place + 4] = rng.choice(HUGE)
            elif kind == 2:
                data[place:place] = rng.randbytes(rng.randrange(1, 20))
            elif place < len(data):
                data[place] ^= 1 << rng.randrange(8)
        return bytes(data)


def _frame(request: Any, version: int) -> bytes:
    parts: Any = frames.encode_request(request, version, 7, "fuzz")
    return b"".join(bytes(part) for part in parts)


def _client_hello() -> bytes:
    context, incoming, outgoing = _untrusting(), ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def _untrusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def send(address: tuple[str, int], data: bytes, context: ssl.SSLContext | None) -> int:
    """Send bytes on a connection of their own; return how many came back."""
    received = 0
    with suppress(OSError), ExitStack() as opened:
        sock = opened.enter_context(socket.create_connection(address, 5))
        if context is not None:
            sock = opened.enter_context(context.wrap_socket(sock))
        sock.sendall(data)
        sock.settimeout(WAIT_S)
        while more := sock.recv(1 << 16):
            received += len(more)
    return received


class Run:
    """Fuzzes one node until so many bytes are sent."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._addresses = cluster.run(lambda node: dict(node.addresses))
        self._bytes = Bytes(seed)
        self._context = _untrusting()
        self.sent = self.connections = self.received = 0
        self.slowest_s = 0.0

    def play(self, count: int, ask: Any) -> None:
        """Send bytes; ask() is the client that logs in."""
        while self.sent < count:
            self._one()
            if self.connections % WITNESS_EACH == 1:
                begun = time.monotonic()
                ask()
                self.slowest_s = max(self.slowest_s, time.monotonic() - begun)

    def _one(self) -> None:
        rng, listener = self._bytes.rng, self._bytes.rng.choice(LISTENERS)
        within_tls = listener == "SECURE" and rng.random() < 0.3
        is_login = listener == "LOGIN" or within_tls or rng.random() < 0.1
        data = self._bytes.login() if is_login else self._bytes.handshake()
        context = self._context if within_tls else None
        self.received += send(self._addresses[listener], data, context)
        self.sent += len(data)
        self.connections += 1


def run(count: int, seed: int = 1) -> dict[str, Any]:
    """Send so many bytes to a node in this process; return the figures. Raises Broken."""
    process, seen = psutil.Process(), Log()
    logger = logging.getLogger("ottla")
    logger.addHandler(seen)
    login_logger = logging.getLogger("ottla.login")
    level = login_logger.level
    login_logger.setLevel(logging.DEBUG)
    with (
        tempfile.TemporaryDirectory() as path,
        running_provider() as provider,
        Cluster(config=settings(Path(path), provider.keys_url)) as cluster,
    ):
        asked = 0
        host, port = cluster.run(lambda node: node.addresses["SECURE"])
        client: dict[str, Any] = {
            "bootstrap_servers": f"{host}:{port}",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": PASSWORD,
            "ssl_truststore_location": str(Path(path) / "ca.pem"),
        }

        def ask() -> None:
            nonlocal asked
            before = seen.logins
            with Admin(**client) as admin:
                admin.list_topics(timeout=10)
            asked += seen.logins - before

        fuzzer, before = Run(cluster, seed), process.memory_info().rss
        fuzzer.play(count, ask)
        ask()
        deadline_s = time.monotonic() + 10
        while cluster.run(_open_count) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        left, is_halted = cluster.run(_open_count), cluster.run(lambda node: node.halted.is_set())
        grown = process.memory_info().rss - before
    logger.removeHandler(seen)
    login_logger.setLevel(level)
    problems = {
        "a client without the password has logged in": seen.logins != asked,
        f"errors in the log: {seen.errors.most_common(3)}": bool(seen.errors),
        f"{left} connections are still open": left > 0,
        f"the memory has grown by {grown} bytes": grown > MEMORY_LIMIT_BYTES,
        "the node has halted": is_halted,
    }
    if found := [text for text, is_so in problems.items() if is_so]:
        raise Broken("; ".join(found))
    return {
        "bytes": fuzzer.sent,
        "seed": seed,
        "connections": fuzzer.connections,
        "bytes_received": fuzzer.received,
        "witness_logins": asked,
        "witness_slowest_ms": round(fuzzer.slowest_s * 1000, 1),
        "memory_grown_mib": round(grown / 2**20, 1),
    }


def _open_count(node: Any) -> int:
    return sum(
        len(listener.connections)
        for listener in node._listeners.open  # noqa: SLF001 - what no client may see
        if listener.name in LISTENERS
    )


def main() -> None:
    """Run with command line arguments and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    begun = time.monotonic()
    figures = run(asked.bytes, asked.seed)
    figures["seconds"] = round(time.monotonic() - begun, 1)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
