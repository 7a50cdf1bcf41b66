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
from ottla.protocol.headers import ResponseHeader
from ottla.records.builder import encode_batch
from ottla.testing.cluster import Cluster
from tests.protocol.messages import random_message

if TYPE_CHECKING:
    from collections.abc import Iterator

HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\0\0\0", b"\xff" * 9 + b"\1")
ANSWER_LIMIT_S = 0.15
"""A request that waits longer is left: its connection is given up."""
COPIES = 8
"""Damaged copies of each sound request."""
LANES = 16
"""Connections at work at once, each with one request under way."""
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


class Mutant(NamedTuple):
    """A frame without its size, and what it was before it was damaged."""

    key: int
    version: int
    frame: bytes


class Problems(logging.Handler):
    """Collects what the dispatcher says of its own failures: there must be none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count the failure by its exception."""
        error = record.exc_info[1] if record.exc_info else None
        self.texts[f"{record.getMessage()}: {error!r}"] += 1


class Mutants:
    """Seeded frames: sound requests of every API, each in a few damaged copies."""

    def __init__(self, apis: dict[int, tuple[int, int]], seed: int) -> None:
        self._apis = apis
        self._rng = Random(seed)

    def frames(self, count: int) -> Iterator[Mutant]:
        """Yield so many frames, API after API."""
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


class Lane:
    """One connection with one mutant under way."""

    def __init__(self, address: tuple[str, int], outcomes: Counter[str]) -> None:
        self._address = address
        self._outcomes = outcomes
        self._mutant = Mutant(0, 0, b"")
        self._received = b""
        self._sock: socket.socket | None = None
        self.deadline_s = 0.0

    def send(self, mutant: Mutant, poller: select.poll, lanes: dict[int, Lane]) -> None:
        """Send one frame, over a new connection where the old one has gone."""
        self._mutant, self._received = mutant, b""
        if self._sock is None:
            self._sock = socket.create_connection(self._address, 5)
            self._sock.settimeout(5)
            lanes[self._sock.fileno()] = self
            poller.register(self._sock, select.POLLIN)
        self.deadline_s = time.monotonic() + ANSWER_LIMIT_S
        with suppress(OSError):  # hung up already: the poll will tell
            self._sock.sendall(struct.pack(">i", len(mutant.frame)) + mutant.frame)

    def receive(self, poller: select.poll, lanes: dict[int, Lane]) -> bool:
        """Take what has come; return whether the mutant has met its end."""
        assert self._sock is not None
        try:
            data = self._sock.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.give_up("closed", poller, lanes)
            return True
        self._received += data
        size = int.from_bytes(self._received[:4], "big") + 4
        if len(self._received) < 4 or len(self._received) < size:
            return False
        _validate(self._mutant, self._received[4:size])
        self._outcomes["answered"] += 1
        return True

    def end_idle(self, poller: select.poll, lanes: dict[int, Lane]) -> None:
        """Close a connection that the node closed after its answer; Broken for bytes more."""
        assert self._sock is not None
        with suppress(OSError):
            if self._sock.recv(1 << 20):
                raise Broken(f"bytes behind the answer to {self._mutant.frame.hex()}")
        self.give_up("closed after its answer", poller, lanes)

    def give_up(self, outcome: str, poller: select.poll, lanes: dict[int, Lane]) -> None:
        """Close the connection and count why."""
        assert self._sock is not None
        self._outcomes[outcome] += 1
        poller.unregister(self._sock)
        del lanes[self._sock.fileno()]
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
    """Sends mutants over a few connections at a time and judges what comes back."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.outcomes: Counter[str] = Counter()
        self._poller = select.poll()
        self._idle = [Lane(address, self.outcomes) for _ in range(LANES)]
        self._connected: dict[int, Lane] = {}
        self._under_way: set[Lane] = set()

    def send_all(self, mutants: Iterator[Mutant]) -> Iterator[None]:
        """Send every mutant; yields now and then, for the witness."""
        for number, mutant in enumerate(mutants):
            while not self._idle:
                self._wait()
            lane = self._idle.pop()
            lane.send(mutant, self._poller, self._connected)
            self._under_way.add(lane)
            if number % 50 == 0:
                yield
        while self._under_way:
            self._wait()
        for lane in self._idle:
            lane.close()

    def _wait(self) -> None:
        for descriptor, _ in self._poller.poll(ANSWER_LIMIT_S * 1000 / 4):
            lane = self._connected[descriptor]
            if lane not in self._under_way:
                lane.end_idle(self._poller, self._connected)
            elif lane.receive(self._poller, self._connected):
                self._done(lane)
        now_s = time.monotonic()
        for lane in [one for one in self._under_way if one.deadline_s < now_s]:
            lane.give_up("no answer yet", self._poller, self._connected)
            self._done(lane)

    def _done(self, lane: Lane) -> None:
        self._under_way.discard(lane)
        self._idle.append(lane)


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
    from ottla.server.requests.dispatch import served_apis

    return {key: (api.lowest, api.highest) for key, api in served_apis(kind).items()}


def run(count: int, seed: int = 1, kind: str = "broker") -> dict[str, Any]:
    """Send so many frames to a node in this process; return the figures. Raises Broken."""
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
        raise Broken(f"the node complained: {problems.texts.most_common(5)}")
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
