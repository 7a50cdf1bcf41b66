"""Transactions a second of Kafka and of Ottla, with 1 and 100 records, of 1 and 8 producers.

    python benchmarks/against_kafka/transactions.py --libs DIR [--seconds 10] [--runs 2]

The native producers of one client process send to both, in alternating runs, after --warm-up
seconds that count for nothing. CPU is that of the broker process for each transaction; the latency
is that of `commit_transaction`, which ends when the coordinator has the decision.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.against_kafka.brokers import Ottla, RealKafka

from ottla import Admin
from ottla.clients.producer.producer import AsyncProducer

if TYPE_CHECKING:
    from benchmarks.against_kafka.brokers import Broker

CASES = [(producers, records) for producers in (1, 8) for records in (1, 100)]
TOPIC, PARTITIONS = "output", 8
_VALUE = bytes(100)


class Figures(NamedTuple):
    """What a run measured; higher rates are better, lower times."""

    rate: float
    cpu_us: float
    p99_ms: float


async def _transact(
    bootstrap: str, number: int, records: int, until_s: float, took_ms: list[float]
) -> None:
    async with AsyncProducer(
        bootstrap_servers=bootstrap, transactional_id=f"t{number}-{records}", linger_ms=5
    ) as producer:
        await producer.init_transactions()
        while time.monotonic() < until_s:
            await producer.begin_transaction()
            for one in range(records):
                await producer.send(TOPIC, _VALUE, partition=(number + one) % PARTITIONS)
            await producer.flush()
            begun_s = time.monotonic()
            await producer.commit_transaction()
            took_ms.append((time.monotonic() - begun_s) * 1000)


async def _load(bootstrap: str, producers: int, records: int, seconds: float) -> list[float]:
    """Run producers for so many seconds; return how long each commit took, in milliseconds."""
    took_ms: list[float] = []
    until_s = time.monotonic() + seconds
    jobs = [_transact(bootstrap, one, records, until_s, took_ms) for one in range(producers)]
    await asyncio.gather(*jobs)
    return took_ms


def measure(broker: Broker, producers: int, records: int, seconds: float) -> Figures:
    """Return the figures of one case."""
    before_s = broker.cpu_seconds()
    took_ms = asyncio.run(_load(broker.bootstrap, producers, records, seconds))
    used_s = broker.cpu_seconds() - before_s
    p99_ms = quantiles(took_ms, n=100)[98]
    return Figures(len(took_ms) / seconds, used_s / len(took_ms) * 1e6, p99_ms)


def main() -> None:
    """Run with command line arguments; print figures and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--libs", required=True, help="the directory of Kafka's jars")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warm-up", type=float, default=20)
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-transactions-") as made:
        brokers: list[Broker] = [
            RealKafka(options.libs, Path(made, "kafka")),
            Ottla(Path(made, "ottla"), "transaction.state.log.min.isr=1"),
        ]
        try:
            _compare(brokers, options)
        finally:
            for one in brokers:
                one.stop()


def _compare(brokers: list[Broker], options: argparse.Namespace) -> None:
    for one in brokers:
        with Admin(bootstrap_servers=one.bootstrap) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        measure(one, 8, 10, options.warm_up)
    for producers, records in CASES:
        best: dict[str, Figures] = {}
        for _ in range(options.runs):
            for one in brokers:
                found = measure(one, producers, records, options.seconds)
                known = best.get(one.name, found)
                best[one.name] = Figures(
                    max(found.rate, known.rate),
                    min(found.cpu_us, known.cpu_us),
                    min(found.p99_ms, known.p99_ms),
                )
        kafka, ottla = best["kafka"], best["ottla"]
        print(f"{producers} producers, {records} records: kafka {kafka}, ottla {ottla}")
        ratios = [ours / theirs for ours, theirs in zip(ottla, kafka, strict=True)]
        print("  Ottla / Kafka: rate {:.2f}, CPU {:.2f}, p99 {:.2f}".format(*ratios), flush=True)


if __name__ == "__main__":
    main()
