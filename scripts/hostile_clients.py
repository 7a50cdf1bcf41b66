#!/usr/bin/env python3
"""Let hostile clients fill a node's memory for a minute, and measure what others see of it.

    scripts/hostile_clients.py --seconds 60

Each hostile request is of another client id and names of its own, of the largest or a long-named
kind of every API in turn, over connections that are closed now and again. Meanwhile a quiet client
asks for metadata and produces. Printed as JSON: its 99th percentiles alone and during the attack,
their ratio, and the growth of the node's resident memory once they have left. The figures include
that the processes compete for the processors.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import cycle
from multiprocessing import Process
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ottla.protocol import frames
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.records.builder import encode_batch
from ottla.server.requests.api import served_apis
from tests.server.reliability.largest_requests import largest
from tests.server.reliability.test_kept_for_clients import NAME_LENGTH, named
from tests.server.requests.untrusted_clients import Peer, produce

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC: Final = "quiet"
HOSTILE: Final = 2
"""Hostile processes: as many as the machine has processors."""
ELEMENTS: Final = 3_000
"""Elements of a large request: enough to need several turns."""
MAX_NUMBER: Final = 60_000
"""Clients that differ: a number is a port, too."""
REQUESTS_OF_A_CONNECTION: Final = 20
ANSWER_LIMIT_S: Final = 2.0
"""A request that waits longer is left alone, with its connection."""
SETTLING_S: Final = 20.0
"""Time after which what belongs to closed connections is gone."""
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "1"}


def attacks(number: int) -> Iterator[bytes]:
    """Yield frames of every API for ever: many elements, then long names."""
    many = [bytes(frame) for _, frame in largest("broker", ELEMENTS, TOPIC)]
    apis = list(served_apis("broker").values())
    for frame in cycle(many):
        yield frame
        api = apis[number % len(apis)]
        number = (number + 1) % MAX_NUMBER
        client_id = f"{number}".ljust(NAME_LENGTH, "c")
        message = named(api.request, api.highest, number)
        parts: list[Any] = frames.encode_request(message, api.highest, 5, client_id)
        yield b"".join(parts)[4:]


def attack(bootstrap: str, seconds: float, start: int) -> None:
    """Send as fast as the node answers, on one connection after the other."""
    end_s, sent = time.monotonic() + seconds, 0
    host, _, port = bootstrap.rpartition(":")
    source = attacks(start)
    while time.monotonic() < end_s:
        with suppress(OSError), socket.create_connection((host, int(port)), 5) as sock:
            sock.settimeout(ANSWER_LIMIT_S)
            for _ in range(REQUESTS_OF_A_CONNECTION):
                frame = next(source)
                sock.sendall(len(frame).to_bytes(4, "big") + frame)
                sent += 1
                sock.recv(1 << 16)
    print(f"{sent} hostile requests", file=sys.stderr)


def latencies(bootstrap: str, seconds: float) -> dict[str, float]:
    """Return the 99th percentile in ms of a client that asks and produces, 100 times a second."""
    peer = Peer(bootstrap)
    records = bytes(encode_batch([(int(time.time() * 1000), b"k", b"v" * 100, ())]))
    taken: dict[str, list[float]] = {"metadata": [], "produce": []}
    end_s = time.monotonic() + seconds
    topics = [MetadataRequest.MetadataRequestTopic(name=TOPIC)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    while time.monotonic() < end_s:
        begin_s = time.perf_counter()
        peer.ask(request, 9)
        middle_s = time.perf_counter()
        produce(peer, TOPIC, records)
        taken["metadata"].append(middle_s - begin_s)
        taken["produce"].append(time.perf_counter() - middle_s)
        time.sleep(0.01)
    peer.close()
    return {
        name: round(1000 * sorted(values)[int(len(values) * 0.99)], 2)
        for name, values in taken.items()
    }


def measure(bootstrap: str, node: psutil.Process, seconds: float) -> dict[str, Any]:
    """Return the figures of a node that runs."""
    latencies(bootstrap, 3.0)
    warm = Process(target=attack, args=(bootstrap, seconds / 2, 0))
    warm.start()  # codecs of all APIs, and what the allocator keeps
    warm.join()
    time.sleep(SETTLING_S)
    alone, before = latencies(bootstrap, seconds / 4), node.memory_info().rss
    processes = [
        Process(target=attack, args=(bootstrap, seconds, (index + 1) * MAX_NUMBER // (HOSTILE + 1)))
        for index in range(HOSTILE)
    ]
    for process in processes:
        process.start()
    attacked, most = latencies(bootstrap, seconds - 2), node.memory_info().rss
    for process in processes:
        process.join()
    time.sleep(SETTLING_S)
    return {
        "load": os.getloadavg()[0],
        "p99_alone_ms": alone,
        "p99_during_attack_ms": attacked,
        "ratio": {name: round(attacked[name] / alone[name], 1) for name in alone},
        "rss_before_mib": before >> 20,
        "rss_at_the_end_mib": most >> 20,
        "rss_growth_mib": (node.memory_info().rss - before) >> 20,
    }


def main() -> int:
    """Start a node, measure it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the attack")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory:
        ready = Path(directory) / "ready.json"
        command = [sys.executable, "-m", "ottla", "server-start", "--port", "0"]
        for name, value in {**SETTINGS, "log.dirs": f"{directory}/data"}.items():
            command += ["--override", f"{name}={value}"]
        command += ["--ready-file", str(ready)]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
            try:
                while not ready.exists():
                    if process.poll() is not None:
                        raise SystemExit("the node did not start")
                    time.sleep(0.1)
                bootstrap = json.loads(ready.read_text("utf-8"))["bootstrap"]
                found = measure(bootstrap, psutil.Process(process.pid), seconds)
            finally:
                process.terminate()
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
