"""The blocking share consumer.

Kafka: org.apache.kafka.clients.consumer.KafkaShareConsumer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.clients.loops import Blocking, CallerDrivenLoop, blocking, locked
from ottla.clients.share.consumer import AsyncShareConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Unpack

    from ottla.clients.keywords import ConsumerSettings
    from ottla.clients.metric_windows import MetricName
    from ottla.clients.share.core import Callback, ShareConsumerCore
    from ottla.clients.share.records import ShareRecord
    from ottla.errors import KafkaError
    from ottla.types import TopicPartition


class ShareConsumer(Blocking):
    """Reads records as a member of a share group; for one thread. Use as `with ShareConsumer(...)`.

    Parameters, modes and acknowledgements are those of AsyncShareConsumer (KIP-932). Iterate over
    it or call `poll`. The loop runs in the caller's thread during calls.

        >>> with Admin(bootstrap_servers=servers) as admin:
        ...     group = ConfigResource(ResourceType.GROUP, "packers")
        ...     _ = admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
        >>> with Producer(bootstrap_servers=servers) as producer:
        ...     _ = producer.send_and_wait("parcels", b"tea")
        >>> with ShareConsumer(
        ...     "parcels", bootstrap_servers=servers, group_id="packers",
        ...     share_acknowledgement_mode="explicit",
        ... ) as consumer:
        ...     records = consumer.poll(timeout=30)
        ...     consumer.acknowledge(records[0], AcknowledgeType.ACCEPT)
        ...     outcomes = consumer.commit()
        >>> records[0].value, list(outcomes.values())
        (b'tea', [None])
    """

    def __init__(
        self,
        *topics: str,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self._async = AsyncShareConsumer(*topics, config=config, **settings)
        self._core: ShareConsumerCore = self._async._core  # noqa: SLF001 - two façades of one core
        self._thread = CallerDrivenLoop(self._core.runtime, "ottla-share-consumer")
        self._thread.call(self._async.start())

    # ------------------------------------------------------------ subscription

    subscribe = locked(AsyncShareConsumer.subscribe)
    unsubscribe = blocking(AsyncShareConsumer.unsubscribe)

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        return self._async.subscription

    def wakeup(self) -> None:
        """Make the current or the next `poll` raise WakeupError.

        The only method that other threads and signal handlers may call.
        """
        self._async.wakeup()

    # ------------------------------------------------------------ records

    def poll(self, timeout: float = 1.0) -> list[ShareRecord]:
        """Return the next records; see AsyncShareConsumer.poll."""
        self._run_callback()
        interrupts = self._thread.interrupts
        interrupts.hold()
        records: list[ShareRecord] = []
        try:
            records = self._thread.call(self._async.wait_records(timeout))
        except asyncio.CancelledError:
            pass  # Ctrl-C: raised below
        finally:
            # Records that were taken must not be lost: the next poll would accept them.
            interrupts.release(keep=bool(records))
        try:
            self._run_callback()
        except BaseException:
            self._core.put_back(records)
            raise
        return records

    def __iter__(self) -> Iterator[ShareRecord]:
        while True:
            yield from self._core.iterate(self.poll())

    # ------------------------------------------------------------ acknowledgements

    acknowledge = locked(AsyncShareConsumer.acknowledge)
    acknowledge_offset = locked(AsyncShareConsumer.acknowledge_offset)

    def commit(self, *, timeout: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send the acknowledgements and wait; returns an outcome for each partition."""
        self._run_callback()
        found = self._thread.call(self._async.send_and_wait(timeout))
        self._run_callback()
        return found

    commit_nowait = locked(AsyncShareConsumer.commit_nowait)

    def set_acknowledgement_callback(self, callback: Callback | None) -> None:
        """Call back with offsets by partition and an error or None, inside poll, commit and close.

        Its exception is raised by the method that calls it; records that a poll has taken by then
        are returned by the next one.
        """
        self._async.set_acknowledgement_callback(callback)

    def _run_callback(self) -> None:
        """Call back outside the loop, as users' code may block."""
        while (arguments := self._core.next_answer()) is not None:
            assert self._core.callback is not None
            with self._core.in_callback():
                self._core.callback(*arguments)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records are locked, None before the first response."""
        return self._async.acquisition_lock_timeout_ms

    def metrics(self) -> dict[MetricName, float | str]:
        """Return the client's metrics under Kafka's names."""
        return self._async.metrics()

    def close(self, timeout: float = 30.0) -> None:
        """Send acknowledgements, end the sessions and leave the group; idempotent.

        Records that were not acknowledged are released at once.
        """
        if self._core.client.closed:
            return
        interrupts = self._thread.interrupts
        interrupts.hold()
        try:
            try:
                self._run_callback()
                self._thread.call(self._async.end_sessions(timeout))
                self._run_callback()
            finally:
                self._thread.call(self._async.finish_close())
        except asyncio.CancelledError:  # Ctrl-C: skip the last requests, but stop everything
            self._thread.call(self._core.runtime.aclose(), may_cancel=False)
        finally:
            self._thread.stop()
            interrupts.release()
