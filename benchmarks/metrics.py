"""Cost of a metrics scrape on the node's loop, and the loop lag during scrapes.

    python benchmarks/metrics.py [partitions] [scrapes]

Runs a node in this process with topics of a hundred partitions and a group with an offset in every
partition of ten topics; half of the partitions grow between two scrapes. Measures
server/metrics/node.py and metrics/families.py.
"""

from __future__ import annotations

import statistics
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import ottla
from ottla.metrics.families import Exposition
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition

if TYPE_CHECKING:
    import asyncio

    from ottla.server.node.node import Node

A_TOPIC = 100
GROUP_TOPICS = 10
PROBE_S = 0.001


class LagProbe:
    """Samples the lag of the node's loop every millisecond."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.late_s: list[float] = []
        self._due_s = 0.0
        loop.call_soon_threadsafe(self._again)

    def _beat(self) -> None:
        self.late_s.append(max(0.0, time.perf_counter() - self._due_s))
        self._again()

    def _again(self) -> None:
        self._due_s = time.perf_counter() + PROBE_S
        self._loop.call_later(PROBE_S, self._beat)

    def worst_ms(self) -> str:
        """Return median, 99th percentile and worst since the last call."""
        late, self.late_s = sorted(self.late_s), []
        shown = (late[len(late) // 2], late[len(late) * 99 // 100], late[-1])
        return " / ".join(f"{one * 1000:.1f}" for one in shown)


def prepare(cluster: Cluster, partitions: int) -> None:
    """Create topics and a group with lag."""
    topics = [f"topic-{number:03}" for number in range(partitions // A_TOPIC)]
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions=A_TOPIC)
    places = [TopicPartition(one, n) for one in topics[:GROUP_TOPICS] for n in range(A_TOPIC)]
    with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for where in places:
            producer.send(where.topic, b"x" * 100, partition=where.partition)
    with ottla.Consumer(bootstrap_servers=cluster.bootstrap, group_id="group") as consumer:
        consumer.assign(places)
        consumer.commit(dict.fromkeys(places, 0))


def grow(node: Node) -> None:
    """Advance the end offsets of half of the logs, as traffic does."""
    for number, partition in enumerate(node.broker.replicas):
        if number % 2:
            partition.log.log_end_offset += 1
            partition.log.size_bytes += 173


def main() -> None:
    """Print the figures."""
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    scrapes = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    config = {"metrics.listener": "127.0.0.1:0", "metrics.partition.level": "partition"}
    with Cluster(config=config) as cluster:
        prepare(cluster, partitions)
        metrics = cluster.run(lambda node: node.http.metrics)
        probe = LagProbe(metrics.loop)
        time.sleep(1)
        print(f"{partitions} partitions; loop lag without scrapes {probe.worst_ms()} ms")
        for encoding in ("identity", "gzip"):
            measure(cluster, encoding, scrapes, probe)
        body = urllib.request.urlopen(cluster.metrics_url).read()
        print(f"{len(body.splitlines())} lines")
        render_alone(cluster)
        cluster.kill()  # the modified log end offsets must not be stored


def measure(cluster: Cluster, encoding: str, scrapes: int, probe: LagProbe) -> None:
    """Scrape with one encoding."""
    request = urllib.request.Request(cluster.metrics_url, headers={"Accept-Encoding": encoding})
    loop_s, cpu_s, wall_s, size = [], [], [], 0
    urllib.request.urlopen(request).read()
    probe.worst_ms()
    for _ in range(scrapes):
        cluster.run(grow)
        before = time.perf_counter()
        with urllib.request.urlopen(request) as answer:
            size = sum(map(len, iter(lambda: answer.read(1 << 20), b"")))
        wall_s.append(time.perf_counter() - before)
        loop_s.append(cluster.run(lambda node: node.http.metrics.last_scrape_s))
        cpu_s.append(cluster.run(lambda node: node.http.metrics.last_scrape_cpu_s))
        time.sleep(0.2)
    print(
        f"{encoding}: loop {statistics.median(loop_s) * 1000:.1f} ms a scrape "
        f"(worst {max(loop_s) * 1000:.1f}), of it CPU {statistics.median(cpu_s) * 1000:.1f} "
        f"(worst {max(cpu_s) * 1000:.1f}); whole scrape {statistics.median(wall_s) * 1000:.0f} ms,"
        f" {size / 1e6:.1f} MB; loop lag {probe.worst_ms()} ms (median / p99 / worst)"
    )


def render_alone(cluster: Cluster) -> None:
    """Measure the rendering of the text only, on this thread."""
    exposition = Exposition()
    for what in ("first", "with templates kept"):
        cluster.run(grow)
        series = cluster.run(
            lambda node: [one for one in node.http.metrics.collect() if one is not None]
        )
        before = time.perf_counter()
        size = sum(map(len, exposition.render(series)))
        print(f"text, {what}: {(time.perf_counter() - before) * 1000:.0f} ms, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
