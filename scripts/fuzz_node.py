#!/usr/bin/env python3
"""Send mutated requests of every served API to a live node, and watch that it stands them.

    scripts/fuzz_node.py --frames 200000 --seed 1

Each frame is a sound request of a random version with a cut, a splice, a flipped byte or a lying
length. The node must answer something that decodes, answer nothing (acks=0, a wait), or close the
connection; a second connection must get its answers all along; memory must stay bounded. A failure
prints the frame: `--seed` and `--frames` replay it.
"""

from __future__ import annotations

import argparse
import json
import logging
import socket
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

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
from ottla.protocol.headers import ResponseHeader
from ottla.records.builder import encode_batch
from ottla.testing.cluster import Cluster
from tests.protocol.messages import random_message

if TYPE_CHECKING:
    from collections.abc import Iterator

HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\0\0\0", b"\xff" * 9 + b"\1")
ANSWER_LIMIT_S = 0.15
"""A request that waits longer is left: its connection is given up."""
MEMORY_LIMIT_BYTES = 300 << 20
"""How much a node may grow over a run."""
SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
CALM_FIELDS = ("timeout_ms", "max_wait_ms", "session_timeout_ms", "rebalance_timeout_ms")


class Broken(AssertionError):
    """The node did what it must not do; one line with the frame."""


class Complaints(logging.Handler):
    """Collects what the dispatcher says of its own failures: there must be none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count the failure by its exception."""
        error = record.exc_info[1] if record.exc_info else None
        self.texts[f"{record.getMessage()}: {error!r}"] += 1


class Fuzzer:
    """One seeded run against one address."""

    def __init__(
        self, address: tuple[str, int], apis: dict[int, tuple[int, int]], seed: int
    ) -> None:
        self._address = address
        self._apis = apis
        self._rng = Random(seed)
        self._sock: socket.socket | None = None
        self.outcomes: Counter[str] = Counter()

    def frames(self, count: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield API key, version and frame without its size."""
        keys = sorted(self._apis)
        for number in range(count):
            key = keys[number % len(keys)]
            version, frame = self._sound(key)
            yield key, version, self._mutated(frame)

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

    def send(self, key: int, version: int, frame: bytes) -> None:
        """Send one frame and judge what comes back."""
        sock = self._connected()
        try:
            sock.sendall(struct.pack(">i", len(frame)) + frame)
            answer = _read_frame(sock)
        except TimeoutError:
            self._drop()
            self.outcomes["no answer yet"] += 1
            return
        except OSError:
            self._drop()
            self.outcomes["closed"] += 1
            return
        if answer is None:
            self._drop()
            self.outcomes["closed"] += 1
            return
        self._judge(key, version, frame, answer)

    def _judge(self, key: int, version: int, frame: bytes, answer: bytes) -> None:
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
        self.outcomes["answered"] += 1

    def _connected(self) -> socket.socket:
        if self._sock is None:
            self._sock = socket.create_connection(self._address, 5)
            self._sock.settimeout(ANSWER_LIMIT_S)
        return self._sock

    def _drop(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    close = _drop


class Witness:
    """The other connection, which must never notice."""

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
        """Ask and take the time; raises Broken when there is no answer."""
        begun = time.monotonic()
        try:
            self._sock.sendall(self._frame)
            answer = _read_frame(self._sock)
        except OSError as error:
            raise Broken(f"the other connection noticed: {error!r}") from error
        if answer is None or answer[:4] != b"\0\0\0\x09":
            raise Broken("the other connection was closed or got another one's answer")
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun)

    def close(self) -> None:
        """Close it."""
        self._sock.close()


def _read_frame(sock: socket.socket) -> bytes | None:
    """Read one answer; None when the connection ends before it is whole."""
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
    """Return the versions of each API that a kind of listener serves."""
    from ottla.server.dispatch import served_apis

    return {key: (api.lowest, api.highest) for key, api in served_apis(kind).items()}


def run(count: int, seed: int = 1, kind: str = "broker") -> dict[str, Any]:
    """Send so many frames to a node in this process; return the figures. Raises Broken."""
    process, complaints = psutil.Process(), Complaints()
    logging.getLogger("ottla").addHandler(complaints)
    with Cluster(config=SETTINGS) as cluster:
        name = "CONTROLLER" if kind == "controller" else "PLAINTEXT"
        address = cluster.run(lambda node: node.addresses[name])
        before = process.memory_info().rss
        fuzzer, witness = Fuzzer(address, served(kind), seed), Witness(address)
        for number, (key, version, frame) in enumerate(fuzzer.frames(count)):
            fuzzer.send(key, version, frame)
            if number % 20 == 0:
                witness.ask()
        witness.ask()
        fuzzer.close()
        witness.close()
        connections = cluster.run(lambda node: sum(len(one.connections) for one in node._listeners))  # noqa: SLF001 - only looked at
        if cluster.run(lambda node: node.halted.is_set()):
            raise Broken("the node has halted")
        grown = process.memory_info().rss - before
        if grown > MEMORY_LIMIT_BYTES:
            raise Broken(f"the node has grown by {grown} bytes")
    logging.getLogger("ottla").removeHandler(complaints)
    if complaints.texts:
        raise Broken(f"the node complained: {complaints.texts.most_common(5)}")
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
    """Run as asked on the command line and print the figures as JSON."""
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
