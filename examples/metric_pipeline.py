"""A metric pipeline: samples of many hosts, and their latest minute in a compacted topic.

Each result is keyed by host and minute: a pipeline that starts again writes the same keys again,
and readers of the compacted topic see one value.

ottla server-start &
python examples/metric_pipeline.py [localhost:9092]
"""

from __future__ import annotations

import json
import sys
import time
from statistics import fmean
from typing import TYPE_CHECKING

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer, NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterable

import asyncio

SAMPLES, MINUTES = "cpu-samples", "cpu-minutes"
START_MS = (int(time.time()) // 60 - 2) * 60_000  # two minutes ago: retention removes old times


def samples() -> list[tuple[str, int, float]]:
    """Return (host, time in ms, share of CPU): three hosts, two minutes, every ten seconds."""
    return [
        (host, START_MS + second * 1000, load + second / 1000)
        for second in range(0, 120, 10)
        for host, load in (("a", 0.1), ("b", 0.5), ("c", 0.8))
    ]


async def report(bootstrap: str, given: Iterable[tuple[str, int, float]]) -> int:
    """Send samples with the time of their measurement."""
    count = 0
    async with AsyncProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        for host, time_ms, load in given:
            await producer.send(SAMPLES, f"{load:.3f}", key=host, timestamp_ms=time_ms)
            count += 1
    return count


async def aggregate(bootstrap: str, count: int) -> dict[str, float]:
    """Read that many samples; write the mean of each host and minute."""
    means: dict[str, list[float]] = {}
    async with AsyncConsumer(
        SAMPLES, bootstrap_servers=bootstrap, group_id="means", auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            minute = (record.timestamp - START_MS) // 60_000
            means.setdefault(f"{record.key.decode()} {minute}", []).append(float(record.value))
            count -= 1
            if not count:
                break
    found = {key: round(fmean(values), 3) for key, values in sorted(means.items())}
    async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
        for key, mean in found.items():
            await producer.send(MINUTES, json.dumps({"mean": mean}), key=key)
    return found


async def main(bootstrap: str) -> dict[str, float]:
    """Run both ends; return the means by host and minute."""
    compacted = NewTopic(MINUTES, 1, 1, {"cleanup.policy": "compact"})
    async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(SAMPLES, partitions=3, if_not_exists=True)
        await admin.create_topics([compacted])
    return await aggregate(bootstrap, await report(bootstrap, samples()))


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")))
