"""A compacted topic as a table: read to its end, followed, written and read back.

Kafka: org.apache.kafka.connect.util.KafkaBasedLog, under Connect's three topics and others.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.consumer import AsyncConsumer
from ottla.clients.loops import Blocking, LoopThread, blocking
from ottla.clients.producer.producer import AsyncProducer
from ottla.errors import (
    ClosedError,
    ErrorCode,
    KafkaError,
    TimeoutError,  # noqa: A004 - Kafka's, also a builtin one
    WakeupError,
)
from ottla.purgatory.compacted_table import CompactedTable
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from typing import Self

    from ottla.purgatory.pending import Pending

POLL_S = 1.0
"""A turn of the reader; waits wake it earlier."""
RETRY_S = 0.1
"""Between attempts to read, after an error that may pass."""
REFUSED_S = 1.0
"""More for an error that passes by what an operator does, as for a missing right."""
log = logging.getLogger("ottla.clients.table")


class _CallbackError(Exception):
    """`on_change` or `on_read` raised its argument: the changes of that step are not complete."""


class AsyncTable:
    """A table over a compacted topic. Use as `async with AsyncTable(topic, ...) as table`.

    It reads the topic to its end on entry, and follows it until it is closed. While brokers refuse
    it, calls that wait raise their error. Transactions that are open or aborted are not seen.

    Parameters:
        topic: a topic with `cleanup.policy=compact`, which exists.
        config: settings of the connection by Kafka's names, for example `bootstrap.servers`.
        timeout: seconds until `start`, `read_to_end` or `write` raise TimeoutError.
        on_change: called with each key and its new value, None for a deleted one; in the loop, so
            it must not wait. An error that it raises ends the reading, and calls raise it.
        on_read: called after the changes of each step of reading with the offset after the last
            record of each partition that was read; likewise in the loop.

    Raises ConfigError for settings that are unknown or invalid.
    """

    def __init__(
        self,
        topic: str,
        *,
        config: Mapping[str, Any],
        timeout: float = 60.0,
        on_change: Callable[[bytes, bytes | None], None] | None = None,
        on_read: Callable[[dict[int, int]], None] | None = None,
    ) -> None:
        self.topic = topic
        self._on_read = on_read
        self._timeout = timeout
        self._core = CompactedTable(on_change)
        self._consumer = AsyncConsumer(
            config=config,
            isolation_level="read_committed",
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            auto_offset_reset="none",  # a log that lost records is read again from its start
        )
        self._producer = AsyncProducer(config=config)
        self._partitions: list[TopicPartition] = []
        self._following: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._refusal = ""
        """The error of the last attempt to read, which the log has."""
        self.closed = False

    def __getitem__(self, key: bytes) -> bytes:
        return self._core.values[key]

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value, None without one."""
        return self._core.values.get(key)

    def items(self) -> list[tuple[bytes, bytes]]:
        """Return all keys with their values."""
        return list(self._core.values.items())

    def __len__(self) -> int:
        return len(self._core.values)

    def __contains__(self, key: bytes) -> bool:
        return key in self._core.values

    async def start(self) -> Self:
        """Read the topic to its end, and follow it from then on."""
        partitions = await self._consumer.partitions_for(self.topic, timeout=self._timeout)
        self._partitions = [TopicPartition(self.topic, known.partition) for known in partitions]
        self._consumer.assign(self._partitions)
        self._consumer.seek_to_beginning(*self._partitions)
        self._following = asyncio.get_running_loop().create_task(self._follow())
        await self.read_to_end()
        return self

    async def read_to_end(self) -> None:
        """Wait until all that is in the topic now has been read."""
        self._check_open()
        ends = await self._consumer.end_offsets(self._partitions, timeout=self._timeout)
        await self._wait(self._core.wait_until({key.partition: end for key, end in ends.items()}))

    async def write(self, key: bytes, value: bytes | None) -> None:
        """Write a value, None to delete the key, and wait until it is read back.

        Raises the errors of a producer: after one it is unknown whether the value was written.
        """
        self._check_open()
        sent = await self._limited(self._producer.send_and_wait(self.topic, value, key))
        await self._wait(self._core.wait_until({sent.partition: sent.offset + 1}))

    async def _wait(self, pending: Pending[None]) -> None:
        self._check_open()  # the reading may have ended since the request
        done = asyncio.Event()
        pending.on_done(lambda _: done.set())
        if not pending.done:
            self._consumer.wakeup()  # a position may be past the last record already
            await self._limited(done.wait())
        pending.value  # noqa: B018 - raises what ended the reading

    async def _limited(self, waiting: Awaitable[Any]) -> Any:
        try:
            return await asyncio.wait_for(waiting, self._timeout)
        except builtins.TimeoutError as error:
            text = f"table {self.topic!r}: no answer within {self._timeout:g} s"
            raise self._failure or TimeoutError(text) from error

    # ------------------------------------------------------------ reading

    async def _follow(self) -> None:
        reading = self._core
        while True:
            try:
                await self._read(reading)
                self._refusal = ""
                if reading is not self._core and self._is_at_end(reading):
                    self._core.restart(reading.values, reading.positions)
                    reading = self._core
            except WakeupError:
                pass  # a new wait: look at the positions
            except ClosedError:
                return
            except KafkaError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    reading = CompactedTable()
                    self._consumer.seek_to_beginning(*self._partitions)
                elif not error.is_retriable:
                    # an ACL may come back: whoever waits hears of it, and the reading goes on
                    self._refuse(error)
                    await asyncio.sleep(REFUSED_S)
                await asyncio.sleep(RETRY_S)
            except _CallbackError as error:
                self._end(error.args[0])
                return
            except Exception as error:  # noqa: BLE001 - calls raise it
                self._end(error)
                return

    def _refuse(self, error: KafkaError) -> None:
        if self._refusal != str(error):  # one line, though a right may be missing for hours
            log.warning("table %r: cannot be read, tried again: %s", self.topic, error)
        self._refusal = str(error)
        self._core.fail(error)

    def _end(self, error: Exception) -> None:
        self._failure = error
        self._core.fail(error)

    async def _read(self, table: CompactedTable) -> None:
        try:
            records = await self._consumer.poll(POLL_S)
        except WakeupError:
            records = []
        try:
            for record in records:
                table.apply(record.key, record.value)
            if records and self._on_read is not None:
                self._on_read({record.partition: record.offset + 1 for record in records})
        except Exception as error:
            raise _CallbackError(error) from error
        positions = {
            partition.partition: await self._consumer.position(partition)
            for partition in self._partitions
        }
        table.advance(positions)

    def _is_at_end(self, table: CompactedTable) -> bool:
        """Whether a new reading has nothing left that the brokers have told of."""
        lags = [self._consumer.lag(partition) for partition in self._partitions]
        return bool(table.positions) and all(lag == 0 for lag in lags)

    def _check_open(self) -> None:
        if self.closed:
            raise self.closed_error()
        if self._failure is not None:
            raise self._failure

    def closed_error(self) -> ClosedError:
        """Return the error of calls after `close`."""
        return ClosedError(f"table {self.topic!r} has been closed")

    async def close(self) -> None:
        """Stop following, and close the connections; idempotent."""
        if self.closed:
            return
        self.closed = True
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        self._core.fail(self.closed_error())
        await self._producer.close()
        await self._consumer.close()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Table(Blocking):
    """AsyncTable with blocking methods, which threads may share. Use as `with Table(...) as table`.

    Parameters are those of AsyncTable; `on_change` is called in the table's own thread.

        with Table("settings", config={"bootstrap.servers": "localhost:9092"}) as table:
            table.write(b"colour", b"blue")
            assert table[b"colour"] == b"blue"
    """

    def __init__(
        self,
        topic: str,
        *,
        config: Mapping[str, Any],
        timeout: float = 60.0,
        on_change: Callable[[bytes, bytes | None], None] | None = None,
    ) -> None:
        self._async = AsyncTable(topic, config=config, timeout=timeout, on_change=on_change)
        self._thread = LoopThread("ottla-table", self._async.closed_error)
        try:
            self._thread.call(self._async.start())
        except BaseException:
            self.close()
            raise

    read_to_end = blocking(AsyncTable.read_to_end)
    write = blocking(AsyncTable.write)

    def __getitem__(self, key: bytes) -> bytes:
        return self._async[key]

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value, None without one."""
        return self._async.get(key)

    def items(self) -> list[tuple[bytes, bytes]]:
        """Return all keys with their values."""
        return self._async.items()

    def __iter__(self) -> Iterator[bytes]:
        return iter([key for key, _ in self.items()])

    def __len__(self) -> int:
        return len(self._async)

    def __contains__(self, key: bytes) -> bool:
        return key in self._async

    def close(self) -> None:
        """Stop following, and close the connections; idempotent."""
        if not self._async.closed:
            self._thread.call(self._async.close())
            self._thread.stop()
