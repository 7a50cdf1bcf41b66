"""The asyncio share consumer.

Kafka: org.apache.kafka.clients.consumer.KafkaShareConsumer.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.clients.arguments import check_callback, check_timeout, topic_names
from ottla.clients.share.core import ShareConsumerCore
from ottla.clients.transport import AsyncClient
from ottla.errors import KafkaError
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from typing import Unpack

    from ottla.clients.environment import ClientEnvironment
    from ottla.clients.keywords import ConsumerSettings
    from ottla.clients.share.core import Callback
    from ottla.clients.share.records import ShareRecord
    from ottla.types import TopicPartition


class AsyncShareConsumer(AsyncClient):
    """Reads records as a member of a share group. Use as `async with AsyncShareConsumer(...)`.

    Parameters:
        topics: topics to subscribe to.
        config: settings under Kafka's dotted names; group.id is required.
        settings: the same as keywords, `group_id="packers"`.

    Members share partitions (KIP-932): each record is locked for the member that gets it, until it
    is acknowledged or the lock times out. With share.acknowledgement.mode=implicit the next `poll`
    or `commit` accepts what the last `poll` or an iteration has returned; with explicit, call
    `acknowledge` for each record. `close` releases records that were not acknowledged.
    """

    def __init__(
        self,
        *topics: str,
        config: Mapping[str, Any] | None = None,
        environment: ClientEnvironment | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """Take settings; an environment is given where the time is simulated."""
        names = topic_names(topics)
        self._core = ShareConsumerCore(config, settings, environment)
        self._runtime = self._core.runtime
        if names:
            self._core.subscribe(names)

    # ------------------------------------------------------------ subscription

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Subscribe to topics, instead of those before."""
        self._core.subscribe(topics)

    async def unsubscribe(self) -> None:
        """Leave the group; records that were not acknowledged are released."""
        self._core.subscribe(())
        await self.end_sessions(self._core.settings.default_api_timeout_ms / 1000)
        self._core.forget()
        await self._leave()

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        self._core.require_open()
        return frozenset(self._core.group.topics)

    def wakeup(self) -> None:
        """Make the current or the next `poll` raise WakeupError; callable from any thread."""
        self._core.wake()
        self._runtime.wake_from_anywhere()

    # ------------------------------------------------------------ records

    async def poll(self, timeout: float = 1.0) -> list[ShareRecord]:
        """Return the next records, about max.poll.records; none if none come within the timeout.

        Parameters:
            timeout: seconds to wait for the first record.

        Acknowledgements of the last poll's records are sent with the request. With
        share.acquire.mode=record_limit it returns at most max.poll.records.
        """
        await self._run_callback()
        records = await self.wait_records(timeout)
        try:
            await self._run_callback()
        except BaseException:
            self._core.put_back(records)
            raise
        return records

    async def wait_records(self, timeout: float) -> list[ShareRecord]:
        """Wait for records: `poll` without the callback."""
        check_timeout(timeout, may_be_none=False)
        core = self._core
        self._runtime.attach()
        deadline_ms = core.now_ms() + timeout * 1000
        with self._runtime.lock:
            core.begin_poll()
        try:
            while True:
                with self._runtime.lock:
                    records = core.take()
                    core.fetcher.is_waiting = not records
                remaining_ms = deadline_ms - core.now_ms()
                if records or remaining_ms <= 0:
                    return records
                await self._runtime.wait_progress(remaining_ms)
        finally:
            core.end_poll()

    async def __aiter__(self) -> AsyncIterator[ShareRecord]:
        while True:
            for record in self._core.iterate(await self.poll()):
                yield record

    # ------------------------------------------------------------ acknowledgements

    def acknowledge(
        self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Decide on a record of the last poll; sent by the next `poll`, `commit` or `close`."""
        self._core.acknowledge(record.topic, record.partition, record.offset, kind)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, kind: AcknowledgeType
    ) -> None:
        """Decide on a record that the deserializers refused: its error names the offset."""
        self._core.acknowledge(topic, partition, offset, kind)

    async def commit(
        self, *, timeout: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send the acknowledgements and wait; returns an outcome for each partition."""
        check_timeout(timeout)
        await self._run_callback()
        found = await self.send_and_wait(timeout)
        await self._run_callback()
        return found

    async def send_and_wait(self, timeout: float | None) -> dict[TopicPartition, KafkaError | None]:
        """Commit without the callback."""
        core = self._core
        self._runtime.attach()
        default_ms = core.settings.default_api_timeout_ms
        timeout_ms = default_ms if timeout is None else timeout * 1000
        with self._runtime.lock:
            sent = core.begin_commit(timeout_ms)
        await self._wait(
            lambda: all(acknowledgement.done.done for acknowledgement in sent), timeout_ms
        )
        return core.outcome(sent)

    async def _wait(self, condition: Callable[[], bool], timeout_ms: float) -> None:
        deadline_ms = self._core.now_ms() + timeout_ms
        while not condition():
            remaining_ms = deadline_ms - self._core.now_ms()
            if remaining_ms <= 0:
                return
            await self._runtime.wait_progress(remaining_ms)

    def commit_nowait(self) -> None:
        """Send the acknowledgements without waiting; the callback gets the outcome."""
        self._core.begin_commit(self._core.settings.default_api_timeout_ms)

    def set_acknowledgement_callback(self, callback: Callback | None) -> None:
        """Call back with offsets by partition and an error or None, inside poll, commit and close.

        The callback may be a coroutine function. Its exception is raised by the method that calls
        it; records that a poll has taken by then are returned by the next one.
        """
        self._core.require_open()
        if callback is not None:
            check_callback(callback)
        self._core.callback = callback

    async def _run_callback(self) -> None:
        while (arguments := self._core.next_answer()) is not None:
            assert self._core.callback is not None
            with self._core.in_callback():
                result = self._core.callback(*arguments)
                if inspect.isawaitable(result):
                    await result

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records are locked, None before the first response."""
        self._core.require_open()
        return self._core.fetcher.lock_timeout_ms

    # ------------------------------------------------------------ close

    async def _leave(self) -> None:
        if not self._runtime.attached:
            return
        pending = self._core.group.leave()
        if pending is not None:
            with suppress(KafkaError):  # the session expires
                await self._runtime.wait_for(pending)

    async def close(self, timeout: float = 30.0) -> None:
        """Send acknowledgements, end the sessions and leave the group; idempotent.

        Records that were not acknowledged are released at once.
        """
        if self._core.client.closed:
            return
        try:
            await self._run_callback()
            await self.end_sessions(timeout)
            await self._run_callback()
        finally:
            await self.finish_close()

    async def end_sessions(self, timeout: float) -> None:
        """Send what was decided, and end the sessions: `close` before the callback's last calls."""
        core = self._core
        core.require_open()
        if self._runtime.attached:
            with self._runtime.lock:
                core.send_decided(timeout * 1000)
                core.fetcher.end_sessions()
            await self._wait(lambda: core.fetcher.is_idle, timeout * 1000)

    async def finish_close(self) -> None:
        """Leave the group and close all connections."""
        if not self._core.client.closed:
            try:
                await self._leave()
            finally:  # a close that is cancelled closes, too
                await self._runtime.aclose()
