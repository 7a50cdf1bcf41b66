"""aiokafka as a command; `stock.py` says what the commands are."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from tests.conformance.clients.commands import (
    ABORTED,
    RECORDS_OF_A_TRANSACTION,
    isolation,
    key_of,
    main,
    say,
    timestamp_of,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


async def produce(arguments: list[str]) -> None:
    """Send records with each codec in turn; say each acknowledgement."""
    bootstrap, topic, count, codecs, first, pause_ms = arguments
    number = int(first)
    for codec in codecs.split(","):
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        async with producer:
            sent = []
            for one in range(number, number + int(count)):
                value, key, time_ms = value_of(one), key_of(one), timestamp_of(one)
                future = await producer.send(topic, value, key, timestamp_ms=time_ms)
                future.add_done_callback(partial(_acknowledged, value.decode()))
                sent.append(future)
                await asyncio.sleep(int(pause_ms) / 1000)
            await asyncio.gather(*sent)
        number += int(count)


def _acknowledged(value: str, future: asyncio.Future[Any]) -> None:
    if future.exception() is None:
        say(future.result().partition, future.result().offset, value)


class Announcer(ConsumerRebalanceListener):  # type: ignore[misc] # the library has no types
    """Says which partitions this member has."""

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Say the new assignment."""
        say("assigned", *sorted(one.partition for one in assigned))

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing: all that was said is committed."""


async def consume(arguments: list[str]) -> None:
    """Read as a member of a group; commit what was said."""
    bootstrap, topic, group, count = arguments
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level=isolation(),
        heartbeat_interval_ms=300,
        session_timeout_ms=45_000,
    )
    consumer.subscribe([topic], listener=Announcer())
    async with consumer:
        seen = 0
        while not stopped.is_set() and (int(count) == 0 or seen < int(count)):
            most = 100 if int(count) == 0 else int(count) - seen
            batches = await consumer.getmany(timeout_ms=200, max_records=most)
            for records in batches.values():
                for one in records:
                    say(one.partition, one.offset, one.value.decode())
                seen += len(records)
            if batches:
                ends = {part: records[-1].offset + 1 for part, records in batches.items()}
                await consumer.commit(ends)


async def offset(arguments: list[str]) -> None:
    """Say the first offset at or after each time."""
    bootstrap, topic, partition, timestamps = arguments
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        for timestamp in timestamps.split(","):
            asked = TopicPartition(topic, int(partition))
            found = (await consumer.offsets_for_times({asked: int(timestamp)}))[asked]
            say(-1 if found is None else found.offset)


async def transact(arguments: list[str]) -> None:
    """Commit and abort transactions with offsets."""
    bootstrap, topic, name, count = arguments
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        for number in range(int(count)):
            await producer.begin_transaction()
            first = number * RECORDS_OF_A_TRANSACTION
            for one in range(first, first + RECORDS_OF_A_TRANSACTION):
                await producer.send_and_wait(topic, value_of(one), key_of(one), one % 2)
            offsets = {TopicPartition(topic, 0): number + 1}
            await producer.send_offsets_to_transaction(offsets, name)
            if number % 3 == ABORTED:
                await producer.abort_transaction()
                say("aborted", number)
            else:
                await producer.commit_transaction()
                say("committed", number)


async def zombie(arguments: list[str]) -> None:
    """Try to commit a transaction after another producer has the id."""
    bootstrap, topic, name = arguments
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, value_of(0), key_of(0), 0)
    say("open")
    await stopped.wait()
    try:
        await producer.commit_transaction()
    except ProducerFenced:
        say("fenced")
    except KafkaError as error:
        say(repr(error))
    else:
        say("committed")


def _runs(command: Callable[[list[str]], Coroutine[Any, Any, None]]) -> Callable[[list[str]], None]:
    return lambda arguments: asyncio.run(command(arguments))


if __name__ == "__main__":
    commands = (produce, consume, offset, transact, zombie)
    main({one.__name__: _runs(one) for one in commands})
