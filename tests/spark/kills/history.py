"""What goes into the chain, and what must come out of it."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from ottla import Admin, Consumer, KafkaError, Producer, TopicPartition
from tests.spark.kills.driver import PARTITIONS, TOPICS

if TYPE_CHECKING:
    from tests.spark.kills.driver import Driver

END_LIMIT_S = 300.0


class Wrong(AssertionError):
    """A violated guarantee, in one line."""


class Feed:
    """Sends numbers; those that were acknowledged must arrive."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """Wait until all that was sent is acknowledged."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            while not self._stop.wait(0.02):
                for _ in range(20):
                    number = self.count
                    producer.send(TOPICS[0], b"%d" % number, partition=number % PARTITIONS)
                    self.count += 1
            producer.flush(120)


def committed_numbers(bootstrap: str) -> Counter[int]:
    """Return how often each number is in the last topic, as committed."""
    found: Counter[int] = Counter()
    with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        partitions = [TopicPartition(TOPICS[-1], index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(one) < ends[one] for one in partitions):
            found.update(int(record.value) for record in consumer.poll(0.2))
    return found


def lag(bootstrap: str) -> int:
    """Return the lag of both groups; a large number while one has no offsets."""
    total = 0
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer,
    ):
        for number in (0, 1):
            found = admin.list_group_offsets(f"query-{number}")
            offsets = {part: one.offset for part, one in found.items() if one is not None}
            if not offsets:
                return sys.maxsize
            ends = consumer.end_offsets(list(offsets))
            total += sum(ends[part] - offset for part, offset in offsets.items())
    return total


def check(bootstrap: str, count: int, driver: Driver) -> None:
    """Wait until all has arrived; raise Wrong for what is lost or doubled."""
    driver.wait_until_started()
    deadline = time.monotonic() + END_LIMIT_S
    while time.monotonic() < deadline and not _has_arrived(bootstrap, count):
        driver.watch()
        time.sleep(1)
    found = committed_numbers(bootstrap)
    doubled = [number for number, times in found.items() if times > 1]
    missing = [number for number in range(count) if number not in found]
    if doubled or missing:
        raise Wrong(f"{len(doubled)} doubled {doubled[:5]}, {len(missing)} missing {missing[:5]}")
    if lag(bootstrap):
        raise Wrong(f"the groups have a lag of {lag(bootstrap)}")


def _has_arrived(bootstrap: str, count: int) -> bool:
    try:
        return len(committed_numbers(bootstrap)) >= count and lag(bootstrap) == 0
    except KafkaError:
        return False  # a broker that was killed last still starts
