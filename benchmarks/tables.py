"""Rows per second of a table scan from page cache, and of the same rows through our consumer.

Run: taskset -c 0 python benchmarks/tables.py; writes a topic of 100-byte values into a temporary
directory through a node of its own, then reads the files in this process.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from typing import TYPE_CHECKING, Any

from ottla import Consumer, tables
from ottla.testing import Cluster, Kafka
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "benchmark"
RUNS = 5


def value_of(number: int) -> bytes:
    """Return 100 bytes of JSON."""
    text = f'{{"id":{number},"user":"user{number % 977}","amount":{number * 7919 % 100003}'
    return (text.ljust(99) + "}").encode()


def produce(kafka: Kafka, rows: int, codec: str) -> None:
    """Write the rows in batches of about 16 KiB, Kafka's default."""
    kafka.topic(TOPIC, exact=True, config={"compression.type": codec})
    for number in range(rows):
        kafka.producer.send(TOPIC, value_of(number), b"%08d" % (number % 10_000))
    kafka.producer.flush()


def consumed(kafka: Kafka, rows: int) -> int:
    """Read all rows by our consumer."""
    count = 0
    with Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        while count < rows:
            count += sum(len(records) for _, records in consumer.poll_batches(1.0))
    return count


def measure(name: str, rows: int, body: Callable[[], int]) -> float:
    """Print the best rate of several runs; return it."""
    best = 0.0
    for _ in range(RUNS):
        started, cpu = time.perf_counter(), time.process_time()
        assert body() == rows, body()
        best = max(best, rows / (time.perf_counter() - started))
        used = time.process_time() - cpu
    print(f"{name:44s} {best / 1e6:8.2f} M rows/s  {used / rows * 1e9:8.0f} ns of CPU a row")
    return best


def scanned(**arguments: Any) -> Callable[[], int]:
    """Return a function that scans the topic and counts rows."""
    return lambda: sum(batch.num_rows for batch in tables.scan(TOPIC, **arguments))


def main() -> None:
    """Write, read, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--codec", default="producer")
    options = parser.parse_args()
    path, rows = tempfile.mkdtemp(), options.rows
    try:
        cluster = Cluster(data_dir=path)
        cluster.start()
        with Kafka(cluster) as kafka:
            produce(kafka, rows, options.codec)
            consumer = measure("consumer", rows, lambda: consumed(kafka, rows))
            measure("scan of brokers", rows, scanned(bootstrap_servers=kafka.bootstrap))
            cluster.stop()
        best = measure("scan of files, all columns", rows, scanned(data_dirs=path))
        print(f"{'scan / consumer':44s} {best / consumer:8.1f} x")
        columns = ["offset", "value"]
        measure("scan of files, offset and value", rows, scanned(data_dirs=path, columns=columns))
        measure("scan of files, offset", rows, scanned(data_dirs=path, columns=["offset"]))
        json = tables.Json("id bigint, user varchar, amount double")
        measure("scan of files, JSON to columns", rows, scanned(data_dirs=path, value=json))
        newest = scanned(data_dirs=path, latest_per_key=True)
        measure("latest of 10,000 keys", rows, lambda: rows - 10_000 + newest())
    finally:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
