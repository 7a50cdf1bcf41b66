"""The asyncio clients: a producer and a consumer in one loop.

Run it against a broker (OTTLA_BOOTSTRAP_SERVERS=host:port), or without one: it then starts a node.
"""

from __future__ import annotations

import asyncio
import os

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer


async def produce(bootstrap: str, count: int) -> None:
    """Send records and await the last delivery."""
    async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(count):
            delivery = await producer.send("ticks", str(n))
        print("last one at", await delivery)


async def consume(bootstrap: str, count: int) -> None:
    """Read all records."""
    async with AsyncConsumer(
        "ticks", bootstrap_servers=bootstrap, group_id="watchers", auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            count -= 1
            if not count:
                print("last value read:", record.value)
                break


async def main(bootstrap: str, count: int = 1000) -> None:
    """Produce and consume concurrently."""
    async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic("ticks", partitions=2, if_not_exists=True)
    await asyncio.gather(produce(bootstrap, count), consume(bootstrap, count))


def run() -> None:
    """Use the given broker or start a node."""
    given = os.environ.get("OTTLA_BOOTSTRAP_SERVERS")
    if given:
        asyncio.run(main(given))
        return
    from ottla.testing.cluster import Cluster

    with Cluster() as cluster:
        asyncio.run(main(cluster.bootstrap))


if __name__ == "__main__":
    run()
