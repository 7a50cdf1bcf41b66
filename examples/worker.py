"""A worker: at-least-once processing with manual commits, retries and a dead-letter topic.

An offset is committed after its record is processed or is in the dead-letter topic. A worker that
is killed in between processes the record again: `process` must tolerate repeats.

ottla server-start &
python examples/worker.py [localhost:9092]
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from ottla import Admin, Consumer, ConsumerRecord, OffsetAndMetadata, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

TASKS, FAILED = "tasks", "tasks-failed"
ATTEMPTS = 3
BACKOFF_SECONDS = 0.1
log = logging.getLogger("worker")


def handle(record: ConsumerRecord, process: Callable[[Any], None], dead_letters: Producer) -> None:
    """Process a record, again after failures; then send it to the dead-letter topic."""
    cause = ""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            process(json.loads(record.value))
        except ValueError as error:  # the record is wrong: another attempt would fail as well
            cause = f"{type(error).__name__}: {error}"
            break
        except Exception as error:  # noqa: BLE001 - one bad record must not stop the worker
            cause = f"{type(error).__name__}: {error}"
            log.warning("%s offset %s, attempt %s: %s", record.topic, record.offset, attempt, cause)
            time.sleep(BACKOFF_SECONDS * attempt)
        else:
            return
    headers = {"cause": cause.encode(), "offset": str(record.offset).encode()}
    dead_letters.send(FAILED, record.value, record.key, headers=headers).result(timeout=10)


def work(bootstrap: str, process: Callable[[Any], None], *, until: Callable[[], bool]) -> None:
    """Process records until `until` returns true; commit after each poll."""
    with (
        Producer(bootstrap_servers=bootstrap, acks="all") as dead_letters,
        Consumer(
            TASKS,
            bootstrap_servers=bootstrap,
            group_id="workers",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=100,
        ) as consumer,
    ):
        while not until():
            done: dict[TopicPartition, OffsetAndMetadata | int] = {}
            try:
                for record in consumer.poll(timeout=0.5):
                    handle(record, process, dead_letters)
                    done[TopicPartition(record.topic, record.partition)] = record.offset + 1
            finally:  # also after Ctrl-C: what is done is not done again
                if done:
                    consumer.commit(done)


def main(bootstrap: str) -> int:
    """Send ten tasks, one of them broken and one that fails twice; return how many were done."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(TASKS, partitions=2, if_not_exists=True)
        admin.create_topic(FAILED, partitions=1, if_not_exists=True)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(9):
            producer.send(TASKS, json.dumps({"number": number}).encode(), str(number))
        producer.send(TASKS, b"{broken", "broken")
    done: list[int] = []
    failures = iter(range(2))
    started = time.monotonic()

    def process(task: dict[str, int]) -> None:
        if task["number"] == 5 and next(failures, None) is not None:
            raise ConnectionError("the database is away")
        done.append(task["number"])

    work(bootstrap, process, until=lambda: len(done) == 9 or time.monotonic() > started + 30)
    return len(set(done))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    print(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"), "tasks done")
