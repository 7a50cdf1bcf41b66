"""The blocking clients: produce, consume in a group, and describe the group.

Run it against a broker (OTTLA_BOOTSTRAP_SERVERS=host:port), or without one: it then starts a node.
"""

from __future__ import annotations

import json
import os

from ottla import Admin, Consumer, Producer


def main(bootstrap: str) -> None:
    """Send ten orders, read them, print the group's offsets."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic("orders", partitions=3, if_not_exists=True)

        with Producer(
            bootstrap_servers=bootstrap, value_serializer="json", linger_ms=5
        ) as producer:
            deliveries = [
                producer.send("orders", {"id": n, "total": n * 10}, key=f"customer-{n % 4}")
                for n in range(10)
            ]
            for delivery in deliveries:
                place = delivery.result(timeout=10)
                print(f"stored in partition {place.partition} at offset {place.offset}")

        with Consumer(
            "orders", bootstrap_servers=bootstrap, group_id="shop", auto_offset_reset="earliest"
        ) as consumer:
            seen = 0
            while seen < 10:
                for record in consumer.poll(timeout=1.0):
                    print(record.key, json.loads(record.value))
                    seen += 1
            consumer.commit()

        print(admin.list_group_offsets("shop"))


def run() -> None:
    """Use the given broker or start a node."""
    given = os.environ.get("OTTLA_BOOTSTRAP_SERVERS")
    if given:
        main(given)
        return
    from ottla.testing.cluster import Cluster

    with Cluster() as cluster:
        main(cluster.bootstrap)


if __name__ == "__main__":
    run()
