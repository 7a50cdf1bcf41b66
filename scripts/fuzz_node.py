#!/usr/bin/env python3
"""Send mutated requests of every supported API to a running node and check that it survives.

    scripts/fuzz_node.py --frames 200000 --seed 1

Each frame is a valid request of a random version that is truncated or spliced, or has a flipped
byte or a false length. The node must send a response that decodes, send none (acks=0, long polls),
or close the connection; a second connection must be served all the time; memory must stay bounded.
A failure prints the frame; `--seed` and `--frames` replay it.
"""

from __future__ import annotations

import argparse
import json
import logging
import select
import socket
import struct
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ottla.errors import OttlaError
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import (
    ApiKey,
    request_class,
    response_class,
    response_header_version,
)
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.frames import ResponseHeader
from ottla.records.builder import encode_batch
from ottla.testing.cluster import Cluster
from tests.protocol.messages import random_message

if TYPE_CHECKING:
    from collections.abc import Iterator

HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\0\0\0", b"\xff" * 9 + b"\1")
ANSWER_LIMIT_S = 0.15
"""Time after which the connection of a waiting request is closed."""
COPIES = 8
"""Mutated copies of each valid request."""
LANES = 16
"""Concurrent connections, each with one request in flight."""
MEMORY_LIMIT_BYTES = 300 << 20
"""Limit for the growth of the node's memory during a run."""
SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
CALM_FIELDS = ("timeout_ms", "max_wait_ms", "session_timeout_ms", "rebalance_timeout_ms")


class Broken(AssertionError):
    """A violation by the node; one line with the frame."""


class Mutant(NamedTuple):
    """A mutated frame without its size, and the original request."""

    key: int
    version: int
    frame: bytes


class Problems(logging.Handler):
    """Collects logged failures of the dispatcher, of which there must be none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count the failure by its exception."""
        error = record.exc_info[1] if record.exc_info else None
        self.texts[f"{record.getMessage()}: {error!r}"] += 1


class Mutants:
    """Seeded frames: valid requests of every API, each in a few mutated copies."""

    def __init__(self, apis: dict[int, tuple[int, int]], seed: int) -> None:
        self._apis = apis
        self._rng = Random(seed)

    def frames(self, count: int) -> Iterator[Mutant]:
        """Yield this number of frames, in turn for each API."""
        keys = sorted(self._apis)
        for number in range(0, count, COPIES):
            key = keys[number // COPIES % len(keys)]
            version, frame = self._sound(key)
            for _ in range(min(COPIES, count - number)):
                yield Mutant(key, version, self._mutated(frame.copy()))

    def _sound(self, key: int) -> tuple[int, bytearray]:
        cls = request_class(ApiKey(key))
        version = self._rng.randint(*self._apis[key])
        message: Any = random_message(cls, version, self._rng)
        for name in CALM_FIELDS:
            if hasattr(message, name):
                setattr(message, name, self._rng.choice((0, 1, 50)))
        if key == ApiKey.PRODUCE:
            self._put_records(message)
        parts = frames.encode_request(message, version, 7, "fuzz")
        return version, bytearray(b"".join(bytes(part) for part in parts[1:]))  # type: ignore[arg-type] # no slices

    def _put_records(self, message: Any) -> None:
        message.acks = self._rng.choice((0, 1, -1))
        message.transactional_id = None
        for topic in message.topic_data:
            for partition in topic.partition_data:
                records = [(1, b"k", self._rng.randbytes(20), ()) for _ in range(3)]
                partition.records = bytes(encode_batch(records))

    def _mutated(self, frame: bytearray) -> bytes:
        rng = self._rng
        for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
            place = rng.randrange(8, max(9, len(frame) + 1))
            kind = rng.randrange(5)
            if kind == 0:
                del frame[place:]
            elif kind == 1:
                frame[place:place] = rng.randbytes(rng.randrange(1, 9))
            elif kind == 2:
                frame[place : place + 4] = rng.randbytes(4)
            elif kind == 3:
                lie = rng.choice(HUGE)
                frame[place : place + len(lie)] = lie
            elif place < len(frame):
                frame[place] ^= 1 << rng.randrange(8)
        return bytes(frame)


class Channel:
    """One connection with one mutant in flight."""

    def __init__(self, address: tuple[str, int], outcomes: Counter[str]) -> None:
        self._address = address
        self._outcomes = outcomes
        self._mutant = Mutant(0, 0, b"")
        self._received = b""
        self._sock: socket.socket | None = None
        self.deadline_s = 0.0

    def send(self, mutant: Mutant, poller: select.poll, channels: dict[int, Channel]) -> None:
        """Send one frame, over a new connection if the old one was closed."""
        self._mutant, self._received = mutant, b""
        if self._sock is None:
            self._sock = socket.create_connection(self._address, 5)
            self._sock.settimeout(5)
            channels[self._sock.fileno()] = self
            poller.register(self._sock, select.POLLIN)
        self.deadline_s = time.monotonic() + ANSWER_LIMIT_S
        with suppress(OSError):  # closed by the node: the poll reports it
            self._sock.sendall(struct.pack(">i", len(mutant.frame)) + mutant.frame)

    def receive(self, poller: select.poll, channels: dict[int, Channel]) -> bool:
        """Receive; return whether the mutant's outcome is known."""
        assert self._sock is not None
        try:
            data = self._sock.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.give_up("closed", poller, channels)
            return True
        self._received += data
        size = int.from_bytes(self._received[:4], "big") + 4
        if len(self._received) < 4 or len(self._received) < size:
            return False
        _validate(self._mutant, self._received[4:size])
        self._outcomes["answered"] += 1
        return True

    def end_idle(self, poller: select.poll, channels: dict[int, Channel]) -> None:
        """Close a connection after its response; raises Broken for extra bytes."""
        assert self._sock is not None
        with suppress(OSError):
            if self._sock.recv(1 << 20):
                raise Broken(f"bytes after the response to {self._mutant.frame.hex()}")
        self.give_up("closed after its answer", poller, channels)

    def give_up(self, outcome: str, poller: select.poll, channels: dict[int, Channel]) -> None:
        """Close the connection and count the reason."""
        assert self._sock is not None
        self._outcomes[outcome] += 1
        poller.unregister(self._sock)
        del channels[self._sock.fileno()]
        self._sock.close()
        self._sock = None

    def close(self) -> None:
        """Close the connection."""
        if self._sock is not None:
            self._sock.close()


def _validate(mutant: Mutant, answer: bytes) -> None:
    key, version, frame = mutant
    try:
        _, position = codec.decode_at(
            ResponseHeader, response_header_version(key, version), memoryview(answer)
        )
        codec.decode_at(response_class(ApiKey(key)), version, memoryview(answer), position)
    except OttlaError as error:
        raise Broken(
            f"{ApiKey(key).name} v{version}: the answer {answer.hex()} to {frame.hex()} does "
            f"not decode: {error}"
        ) from error


class Fuzzer:
    """Sends mutants over a few connections at a time and checks the responses."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.outcomes: Counter[str] = Counter()
        self._poller = select.poll()
        self._idle = [Channel(address, self.outcomes) for _ in range(LANES)]
        self._connected: dict[int, Channel] = {}
        self._under_way: set[Channel] = set()

    def send_all(self, mutants: Iterator[Mutant]) -> Iterator[None]:
        """Send every mutant; yields at intervals, for the witness."""
        for number, mutant in enumerate(mutants):
            while not self._idle:
                self._wait()
            channel = self._idle.pop()
            channel.send(mutant, self._poller, self._connected)
            self._under_way.add(channel)
            if number % 50 == 0:
                yield
        while self._under_way:
            self._wait()
        for channel in self._idle:
            channel.close()

    def _wait(self) -> None:
        for descriptor, _ in self._poller.poll(ANSWER_LIMIT_S * 1000 / 4):
            channel = self._connected[descriptor]
            if channel not in self._under_way:
                channel.end_idle(self._poller, self._connected)
            elif channel.receive(self._poller, self._connected):
                self._done(channel)
        now_s = time.monotonic()
        for channel in [one for one in self._under_way if one.deadline_s < now_s]:
            channel.give_up("no answer yet", self._poller, self._connected)
            self._done(channel)

    def _done(self, channel: Channel) -> None:
        self._under_way.discard(channel)
        self._idle.append(channel)


class Witness:
    """A second connection, which must be served without errors."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._sock = socket.create_connection(address, 5)
        self._sock.settimeout(10)
        request = ApiVersionsRequest(client_software_name="w", client_software_version="1")
        self._frame = b"".join(
            bytes(part)  # type: ignore[arg-type] # no slices
            for part in frames.encode_request(request, 4, 9, "witness")
        )
        self.slowest_s = 0.0

    def ask(self) -> None:
        """Send a request and measure its time; raises Broken without a response."""
        begun = time.monotonic()
        try:
            self._sock.sendall(self._frame)
            answer = _read_frame(self._sock)
        except OSError as error:
            raise Broken(f"the second connection failed: {error!r}") from error
        if answer is None or answer[:4] != b"\0\0\0\x09":
            raise Broken("the second connection was closed or received a wrong response")
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


def _read_frame(sock: socket.socket) -> bytes | None:
    """Read one response; None if the connection ends before it is complete."""
    head = _read(sock, 4)
    return None if head is None else _read(sock, int.from_bytes(head, "big"))


def _read(sock: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def served(kind: str) -> dict[int, tuple[int, int]]:
    """Return the versions of each API that a listener type serves."""
    from ottla.server.requests.api import served_apis

    return {key: (api.lowest, api.highest) for key, api in served_apis(kind).items()}


def run(count: int, seed: int = 1, kind: str = "broker") -> dict[str, Any]:
    """Send frames to a node in this process; return the figures. Raises Broken."""
    process, problems = psutil.Process(), Problems()
    logging.getLogger("ottla").addHandler(problems)
    with Cluster(config=SETTINGS) as cluster:
        name = "CONTROLLER" if kind == "controller" else "PLAINTEXT"
        address = cluster.run(lambda node: node.addresses[name])
        before = process.memory_info().rss
        fuzzer, witness = Fuzzer(address), Witness(address)
        for _ in fuzzer.send_all(Mutants(served(kind), seed).frames(count)):
            witness.ask()
        witness.ask()
        witness.close()
        connections = cluster.run(lambda node: node.connection_count)
        if cluster.run(lambda node: node.halted.is_set()):
            raise Broken("the node has halted")
        grown = process.memory_info().rss - before
        if grown > MEMORY_LIMIT_BYTES:
            raise Broken(f"the node has grown by {grown} bytes")
    logging.getLogger("ottla").removeHandler(problems)
    if problems.texts:
        raise Broken(f"the node logged errors: {problems.texts.most_common(5)}")
    return {
        "frames": count,
        "seed": seed,
        "listener": kind,
        **dict(fuzzer.outcomes),
        "connections_left": connections,
        "witness_slowest_ms": round(witness.slowest_s * 1000, 1),
        "memory_grown_mib": round(grown / 2**20, 1),
    }


def main() -> None:
    """Run with command line arguments and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--listener", choices=("broker", "controller"), default="broker")
    asked = parser.parse_args()
    begun = time.monotonic()
    figures = run(asked.frames, asked.seed, asked.listener)
    figures["seconds"] = round(time.monotonic() - begun, 1)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
