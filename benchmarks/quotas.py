"""How closely throttled clients are held to their quota, and the effect on other clients.

    python benchmarks/quotas.py [--windows 8] [--bootstrap host:port]

Two connections of one client id write without pause, two of another read; both ignore
throttle_time_ms. A third client without a quota, in its own process, writes 100 small records a
second before, during, and finally while the others run without quotas. Without --bootstrap a node
is started; any other Kafka broker can be measured instead.

Rates are bytes as the quota counts them, after the window has filled. A client without pauses is
throttled in bursts, one per window of eleven seconds (Kafka's arithmetic), so the rate is the mean
over all spans of several windows that start within one window.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ottla
from ottla.clients.admin.quotas import QuotaChange
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.frames import ResponseHeader
from ottla.records.builder import encode_batch
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.protocol.schema import Request

QUOTA_BYTES = 5_000_000
BATCH_BYTES = 100_000
FILL_S = 15
WINDOW_S = 11
SAMPLES_A_SECOND = 10
OTHERS_A_SECOND = 100
PRODUCE, FETCH = 9, 12
TOPIC, OTHER_TOPIC = "quota-benchmark", "quota-benchmark-other"


class Wire:
    """One blocking connection that ignores throttling."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self._client_id = client_id

    def ask(self, request: Request, version: int) -> tuple[Any, int, int]:
        """Return the response, and the sizes of request and response as quotas count them."""
        items = frames.encode_request(request, version, 1, self._client_id)
        frame = b"".join(item for item in items if not isinstance(item, FileSlice))
        self._socket.sendall(frame)
        key = ApiKey(request.message_key)
        body = memoryview(self._stream.read(int.from_bytes(self._stream.read(4), "big")))
        header = response_header_version(key, version)
        position = codec.decode_at(ResponseHeader, header, body, 0)[1]
        answer = codec.decode_at(response_class(key), version, body, position)[0]
        return answer, len(frame) - 4, len(body) - position + 4


def write(wire: Wire, topic: str, value: bytes) -> int:
    """Write one record; return the bytes that the quota counts."""
    batch = encode_batch([(int(time.time() * 1000), None, value, ())])
    struct = ProduceRequest.TopicProduceData
    data = struct(name=topic, partition_data=[struct.PartitionProduceData(index=0, records=batch)])
    return wire.ask(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), PRODUCE)[1]


def read(wire: Wire) -> int:
    """Read some of the topic from its start; return the bytes that the quota counts."""
    struct = FetchRequest.FetchTopic
    partition = struct.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=5 * BATCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=5 * BATCH_BYTES,
        session_epoch=-1,
        topics=[struct(topic=TOPIC, partitions=[partition])],
    )
    answer, _, size = wire.ask(request, FETCH)
    return 0 if answer.throttle_time_ms else size


class Load:
    """Threads that repeat one operation, and the bytes transferred."""

    def __init__(self, step: Callable[[Wire], int], wires: list[Wire]) -> None:
        self.total_bytes = 0
        self._lock = threading.Lock()
        for wire in wires:
            threading.Thread(target=self._run, args=(step, wire), daemon=True).start()

    def sample(self, seconds: float) -> list[int]:
        """Sample the total ten times a second."""
        totals: list[int] = []

        def note() -> None:
            begin = time.perf_counter()
            for number in range(int(seconds * SAMPLES_A_SECOND) + 1):
                due = begin + number / SAMPLES_A_SECOND
                time.sleep(max(0.0, due - time.perf_counter()))
                totals.append(self.total_bytes)

        threading.Thread(target=note, daemon=True).start()
        return totals

    def _run(self, step: Callable[[Wire], int], wire: Wire) -> None:
        with contextlib.suppress(OSError):
            while True:
                size = step(wire)
                with self._lock:
                    self.total_bytes += size


def latencies_ms(wire: Wire, seconds: float) -> list[float]:
    """Write small records at a fixed rate; return the latency of each."""
    taken: list[float] = []
    begin = time.perf_counter()
    for number in itertools.count():
        due = begin + number / OTHERS_A_SECOND
        if due > begin + seconds:
            return sorted(taken)
        time.sleep(max(0.0, due - time.perf_counter()))
        started = time.perf_counter()
        write(wire, OTHER_TOPIC, b"small")
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def mean_rate(totals: list[int]) -> float:
    """Return the mean bytes per second over all spans that are one window shorter."""
    window = WINDOW_S * SAMPLES_A_SECOND
    span = len(totals) - window
    spans = [totals[begin + span] - totals[begin] for begin in range(window)]
    return statistics.mean(spans) / span * SAMPLES_A_SECOND


def other_client(bootstrap: str, seconds: float) -> subprocess.Popen[str]:
    """Start the client without a quota, which prints its latencies at the end."""
    command = [sys.executable, __file__, "--other", str(seconds), "--bootstrap", bootstrap]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run_other(bootstrap: str, seconds: float) -> None:
    """Run the client without a quota."""
    wire = Wire(bootstrap, "other")
    latencies_ms(wire, 1)
    taken = latencies_ms(wire, seconds)
    print(f"p50 {statistics.median(taken):.2f} ms, p99 {taken[int(len(taken) * 0.99)]:.2f} ms")


@contextlib.contextmanager
def own_node() -> Iterator[str]:
    """Run a node in its own process."""
    with tempfile.TemporaryDirectory() as directory, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        ready = Path(directory, "ready")
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
        command = [sys.executable, "-m", "ottla", "server-start", "--ready-file", str(ready)]
        for override in (f"log.dirs={directory}/data", listeners):
            command += ["--override", override]
        node = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ)
        try:
            while not ready.exists():
                assert node.poll() is None
                time.sleep(0.05)
            yield f"127.0.0.1:{port}"
        finally:
            node.terminate()
            node.wait()


def set_quotas(bootstrap: str, limit: float | None) -> None:
    """Set or remove the quotas of writer and reader."""
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_client_quotas(
            [
                QuotaChange({"client-id": "writer"}, {"producer_byte_rate": limit}),
                QuotaChange({"client-id": "reader"}, {"consumer_byte_rate": limit}),
            ]
        )


def measure(bootstrap: str, seconds: float) -> None:
    """Measure one node and print the figures."""
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        for topic in (TOPIC, OTHER_TOPIC):
            admin.create_topic(topic)
    set_quotas(bootstrap, QUOTA_BYTES)
    value = os.urandom(BATCH_BYTES)
    first = Wire(bootstrap, "first")
    for _ in range(10):
        write(first, TOPIC, value)
    print("another client alone:", other_client(bootstrap, 10).communicate()[0], end="")
    loads = {
        "produce": Load(
            lambda wire: write(wire, TOPIC, value), [Wire(bootstrap, "writer") for _ in range(2)]
        ),
        "fetch": Load(read, [Wire(bootstrap, "reader") for _ in range(2)]),
    }
    time.sleep(FILL_S)
    totals = {name: load.sample(seconds) for name, load in loads.items()}
    throttled = other_client(bootstrap, seconds - 2)
    time.sleep(seconds + 1)
    for name, sampled in totals.items():
        rate = mean_rate(sampled)
        print(f"{name}: {rate:,.0f} B/s of {QUOTA_BYTES:,}: {rate / QUOTA_BYTES - 1:+.1%}")
    print("another client during throttling:", throttled.communicate()[0], end="")
    set_quotas(bootstrap, None)
    time.sleep(WINDOW_S)
    print("and without quotas:", other_client(bootstrap, 10).communicate()[0], end="")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--bootstrap")
    parser.add_argument("--other", type=float, help="seconds; run as the other client")
    arguments = parser.parse_args()
    if arguments.other:
        run_other(arguments.bootstrap, arguments.other)
        return
    seconds = (arguments.windows + 1) * WINDOW_S
    if arguments.bootstrap:
        measure(arguments.bootstrap, seconds)
        return
    with own_node() as bootstrap:
        measure(bootstrap, seconds)


if __name__ == "__main__":
    main()
