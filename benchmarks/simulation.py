"""Events a second of a simulated node under a steady load, and seeds a minute of the workload.

An event is a message delivered, a timer fired or a file operation.
Run: PYTHONPATH=. python benchmarks/simulation.py
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time

from ottla.testing.simulation import SimulatedNode
from tests.simulation.nodes.workload import Workload

PRODUCERS = 4
RECORDS = 2000
SEEDS = 30


def steady_load() -> float:
    """Return events per CPU second of four producers and one group member."""
    simulation = SimulatedNode(1, config={"auto.create.topics.enable": "false"})
    took_s = 0.0
    events = 0

    async def produce(partition: int) -> None:
        async with simulation.producer(linger_ms=0) as producer:
            for _ in range(RECORDS):
                await producer.send_and_wait("t", bytes(100), partition=partition)

    async def consume() -> None:
        read = 0
        async with simulation.consumer(
            "t", group_id="g", auto_offset_reset="earliest", fetch_max_wait_ms=20
        ) as consumer:
            while read < PRODUCERS * RECORDS:
                read += len(await consumer.poll(1.0))

    async def work() -> None:
        nonlocal took_s, events
        await simulation.start()
        async with simulation.admin() as admin:
            await admin.create_topic("t", PRODUCERS)
        gc.collect()
        gc.freeze()
        events, start_s = simulation.trace.event_count, time.process_time()
        await asyncio.gather(*(produce(number) for number in range(PRODUCERS)), consume())
        took_s = time.process_time() - start_s
        events = simulation.trace.event_count - events
        await simulation.stop()

    simulation.run(work())
    return events / took_s


def workload() -> tuple[float, float]:
    """Return events per CPU second and seeds per CPU minute of the workload with crashes."""
    start_s, events = time.process_time(), 0
    for seed in range(SEEDS):
        events += Workload(seed).run().simulation.trace.event_count
    took_s = time.process_time() - start_s
    return events / took_s, 60 * SEEDS / took_s


def main() -> None:
    """Print both; log lines, of which nothing is read here, would cost a part of the time."""
    logging.disable(logging.CRITICAL)
    print(f"steady load: {steady_load():,.0f} events per CPU second")
    events, seeds = workload()
    print(f"workload with crashes: {events:,.0f} events per CPU second")
    print(f"workload with crashes: {seeds:,.0f} seeds per CPU minute")


if __name__ == "__main__":
    main()
