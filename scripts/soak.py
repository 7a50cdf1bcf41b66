"""Run a node under half load for a long time: memory, descriptors and loop lag must not grow.

    scripts/soak.py --minutes 60 --connections 1000 --partitions 10000

The node runs in its own process; this process simulates clients with raw frames: every connection
produces and fetches in turn, at about half the node's maximum rate, which is measured in the first
seconds. The node's resident memory and open descriptors are sampled every second, and its loop lag
(ottla_loop_lag_seconds) is read at the end. Prints one JSON object; exits with 1 if memory or
descriptors of the last quarter exceed those of the second by more than the tolerance, if a request
failed, or if the node did not stop cleanly.

Kafka: none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import uvloop

from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.frames import ResponseHeader
from ottla.records.builder import encode_batch
from ottla.types import FileSlice

TOLERANCE = 0.05
"""Maximum ratio of the last quarter to the second."""
PARTITIONS_PER_TOPIC = 500
RECORDS, RECORD_BYTES = 10, 100
CONFIGS = (
    ("segment.ms", "900000"),
    ("segment.jitter.ms", "600000"),
    ("retention.bytes", "65536"),
)
"""Each log rolls every five to fifteen minutes and deletes its oldest segment, at different times:
all that a log keeps in memory is there in the second quarter of an hour. A roll takes about five
fsyncs, and ten thousand logs in a few minutes are more than a slow disk does."""
CALIBRATION_S, STOP_LIMIT_S = 5.0, 300.0
VERSION = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 11, ApiKey.CREATE_TOPICS: 5}


class Client(asyncio.Protocol):
    """One connection that produces to a partition and fetches from it, partition by partition."""

    def __init__(self, soak: Soak, number: int) -> None:
        self._soak = soak
        self._place = number
        self._received = b""
        self._began = 0.0
        self._fetches = False
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start after a random delay, so that connections do not send at once."""
        self._transport = transport
        spread_s = 1.0 * self._place / self._soak.connections
        asyncio.get_running_loop().call_later(spread_s, self._produce)

    def _produce(self) -> None:
        if self._soak.is_over:
            self._transport.close()
            return
        self._began, self._fetches = time.monotonic(), False
        self._transport.write(self._soak.produce_frame(self._place))

    def data_received(self, data: bytes) -> None:
        """Continue when the response is complete."""
        self._received += data
        size = int.from_bytes(self._received[:4], "big") + 4
        if len(self._received) < max(size, 8):
            return
        frame, self._received = self._received[4:size], self._received[size:]
        if self._fetches:
            self._fetched(decoded(ApiKey.FETCH, frame))
        else:
            self._produced(decoded(ApiKey.PRODUCE, frame))

    def _produced(self, response: Any) -> None:
        answer = response.responses[0].partition_responses[0]
        self._soak.errors += bool(answer.error_code)
        self._fetches = True
        self._transport.write(self._soak.fetch_frame(self._place, answer.base_offset))

    def _fetched(self, response: Any) -> None:
        read = response.responses[0].partitions[0]
        self._soak.errors += bool(read.error_code) or not read.records
        self._soak.rounds += 1
        self._place += self._soak.connections
        left_s = self._soak.interval_s - (time.monotonic() - self._began)
        asyncio.get_running_loop().call_later(max(left_s, 0), self._produce)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Count a connection that the node closed."""
        self._soak.errors += not self._soak.is_over


def encoded(request: Any) -> bytes:
    """Return the complete frame of a request."""
    key = ApiKey(request.message_key)
    parts = frames.encode_request(request, VERSION[key], 1, "soak")
    return b"".join(part for part in parts if not isinstance(part, FileSlice))


def decoded(key: ApiKey, frame: bytes) -> Any:
    """Return the response in a frame without its size."""
    version, body = VERSION[key], memoryview(frame)
    position = codec.decode_at(ResponseHeader, response_header_version(key, version), body)[1]
    return codec.decode_at(response_class(key), version, body, position)[0]


class Soak:
    """The clients, their rate and the measurements."""

    def __init__(self, node: dict[str, str], options: argparse.Namespace) -> None:
        self._metrics_url = node["metrics"]
        host, _, port = node["bootstrap"].rpartition(":")
        self.address = (host, int(port))
        self.connections: int = options.connections
        self.partitions: int = options.partitions
        self.interval_s = 0.0
        self.rounds = 0
        self.errors = 0
        self.samples: list[tuple[int, int]] = []
        self.is_over = False
        self._environment: dict[int, tuple[bytes, bytes]] = {}
        """By partition: the bytes before and after the records of a produce request."""
        self._records = b""
        self._second = 0

    def place(self, number: int) -> tuple[str, int]:
        """Return topic and partition of a number."""
        topic, partition = divmod(number % self.partitions, PARTITIONS_PER_TOPIC)
        return f"soak-{topic}", partition

    def produce_frame(self, number: int) -> bytes:
        """Return the request that writes records with the current second to a partition."""
        now_s = int(time.time())
        if now_s != self._second:
            self._second = now_s
            records = [(now_s * 1000, None, bytes(RECORD_BYTES), ())] * RECORDS
            self._records = bytes(encode_batch(records))
        environment = self._environment.get(number % self.partitions)
        if environment is None:
            environment = self._environment[number % self.partitions] = self._new_environment(
                number
            )
        return self._records.join(environment)

    def _new_environment(self, number: int) -> tuple[bytes, bytes]:
        topic, partition = self.place(number)
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=partition, records=self._records)
        whole = data(name=topic, partition_data=[part])
        frame = encoded(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[whole]))
        before, _, after = frame.partition(self._records)
        return before, after

    def fetch_frame(self, number: int, offset: int) -> bytes:
        """Return the request that reads the records just written."""
        topic, partition = self.place(number)
        topic_class = FetchRequest.FetchTopic
        one = topic_class.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 16
        )
        topics = [topic_class(topic=topic, partitions=[one])]
        return encoded(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics))

    def create(self) -> None:
        """Create all topics."""
        topic = CreateTopicsRequest.CreatableTopic
        configs = [topic.CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS]
        with socket.create_connection(self.address, 60) as connection:
            stream = connection.makefile("rb")
            for first in range(0, self.partitions, PARTITIONS_PER_TOPIC):
                creatable = topic(
                    name=self.place(first)[0],
                    num_partitions=min(PARTITIONS_PER_TOPIC, self.partitions - first),
                    replication_factor=1,
                    assignments=[],
                    configs=configs,
                )
                connection.sendall(encoded(CreateTopicsRequest(topics=[creatable])))
                frame = stream.read(int.from_bytes(stream.read(4), "big"))
                answer = decoded(ApiKey.CREATE_TOPICS, frame)
                assert answer.topics[0].error_code == 0, answer
            stream.close()

    async def watch(self, process: psutil.Process, seconds: float) -> None:
        """Sample the node every second until the end."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.samples.append((process.memory_info().rss, process.num_fds()))
            await asyncio.sleep(1)

    async def run(self, process: psutil.Process, seconds: float) -> dict[str, Any]:
        """Measure the maximum rate, then run at half of it; return the figures."""
        loop = asyncio.get_running_loop()
        for number in range(self.connections):
            await loop.create_connection(partial(Client, self, number), *self.address)
        await asyncio.sleep(CALIBRATION_S)
        done, began = self.rounds, time.monotonic()
        await asyncio.sleep(CALIBRATION_S)
        full_rate = (self.rounds - done) / (time.monotonic() - began)
        self.interval_s = self.connections / (full_rate / 2)
        await asyncio.sleep(2 * self.interval_s)
        before = await asyncio.to_thread(lag_counts, self._metrics_url)
        self.rounds, used_s, began = 0, _used_s(process), time.monotonic()
        await self.watch(process, seconds)
        took_s = time.monotonic() - began
        lags = lag_figures(before, await asyncio.to_thread(lag_counts, self._metrics_url))
        figures = (
            self.figures()
            | lags
            | {
                "full_requests_per_s": round(2 * full_rate),
                "requests_per_s": round(2 * self.rounds / took_s),
                "node_cpu_percent": round(100 * (_used_s(process) - used_s) / took_s),
                "seconds": round(took_s),
            }
        )
        self.is_over = True
        await asyncio.sleep(2 * self.interval_s)
        return figures

    def figures(self) -> dict[str, Any]:
        """Return the samples by quarters."""
        quarter = max(len(self.samples) // 4, 1)
        quarters = [self.samples[at : at + quarter] for at in range(0, 4 * quarter, quarter)]
        rss = [statistics.median(one[0] for one in part) / 1e6 for part in quarters if part]
        fds = [statistics.median(one[1] for one in part) for part in quarters if part]
        return {
            "connections": self.connections,
            "partitions": self.partitions,
            "errors": self.errors,
            "rss_mb_by_quarter": [round(value, 1) for value in rss],
            "descriptors_by_quarter": fds,
            "is_flat": _is_flat(rss) and _is_flat(fds) and not self.errors,
        }


def _used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _is_flat(quarters: list[float]) -> bool:
    """Whether the last quarter is no larger than the second, after warm-up."""
    return quarters[-1] <= quarters[min(1, len(quarters) - 1)] * (1 + TOLERANCE)


def lag_counts(url: str) -> dict[float, float]:
    """Return the cumulative counts of the node's loop lag by bound in seconds, since its start."""
    with urlopen(f"{url.rstrip('/').removesuffix('/metrics')}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'ottla_loop_lag_seconds_bucket\{.*?le="([^"]+)".*?\} (\S+)', text)
    return {float(bound): float(count) for bound, count in found}


def lag_figures(before: dict[float, float], after: dict[float, float]) -> dict[str, float]:
    """Return for each quantile the lowest bound in ms of the loop lag between two scrapes."""
    counts = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    total = max(counts.values())
    return {
        f"loop_lag_ms_p{100 * quantile:g}_at_most": 1000
        * min(bound for bound, count in counts.items() if count >= quantile * total)
        for quantile in (0.5, 0.99, 0.999, 1.0)
    }


def soak(options: argparse.Namespace) -> dict[str, Any]:
    """Start a node, run the load, stop the node; return the figures."""
    with tempfile.TemporaryDirectory() as directory:
        ready = Path(directory) / "ready.json"
        command = [sys.executable, "-m", "ottla", "server-start", "--port", "0"]
        command += ["--override", f"log.dirs={directory}/data", "--ready-file", str(ready)]
        command += ["--override", "log.retention.check.interval.ms=10000"]
        command += ["--override", "metrics.listener=127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                while not ready.exists():
                    if process.poll() is not None:
                        raise SystemExit("the node did not start")
                    time.sleep(0.1)
                known = json.loads(ready.read_text(encoding="utf-8"))
                playing = Soak(known, options)
                began = time.monotonic()
                playing.create()
                create_s = time.monotonic() - began
                print(f"created in {create_s:.1f} s", file=sys.stderr)
                watched = psutil.Process(process.pid)
                figures = uvloop.run(playing.run(watched, options.minutes * 60))
                print(json.dumps(figures), file=sys.stderr)
            finally:
                began = time.monotonic()
                process.terminate()
                try:
                    process.wait(STOP_LIMIT_S)
                finally:
                    process.kill()
        return figures | {
            "create_s": round(create_s, 1),
            "stop_s": round(time.monotonic() - began, 1),
            "exit_code": process.returncode,
        }


def main() -> int:
    """Parse the options, run, print the result; return 1 for growth or failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10_000)
    figures = soak(parser.parse_args())
    print(json.dumps(figures, indent=2))
    return 0 if figures["is_flat"] and figures["exit_code"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
