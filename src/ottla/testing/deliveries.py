"""Deliveries to the share consumers of a test: how often each group got each record.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.share.blocking import ShareConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.share.records import ShareRecord

_MAX_LISTED = 20


class CountedShareConsumer(ShareConsumer):
    """A share consumer that reports its records to a callback."""

    def __init__(
        self, *topics: str, on_records: Callable[[list[ShareRecord]], None], **settings: Any
    ) -> None:
        super().__init__(*topics, **settings)
        self._on_records = on_records

    def poll(self, timeout: float = 1.0) -> list[ShareRecord]:
        """Return the next records."""
        records = super().poll(timeout)
        self._on_records(records)
        return records


class GroupDeliveries:
    """The deliveries of one group, by topic, partition and offset."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int, int], int] = {}

    def note(self, records: list[ShareRecord]) -> None:
        """Count records as delivered; a record whose lock was renewed counts once."""
        for record in records:
            key = record.topic, record.partition, record.offset
            self.counts[key] = max(self.counts.get(key, 0), record.delivery_count)

    def check(self, group: str, records: Iterable[ConsumerRecord], times: int) -> None:
        """Raise AssertionError unless each record was delivered `times` times."""
        wrong = []
        for record in records:
            key = record.topic, record.partition, record.offset
            count = self.counts.get(key, 0)
            if count != times:
                wrong.append(f"  {key[0]}-{key[1]} offset {key[2]}: {count}")
        if wrong:
            listed = "\n".join(wrong[:_MAX_LISTED])
            more = len(wrong) - _MAX_LISTED
            rest = f"\n  and {more} more" if more > 0 else ""
            raise AssertionError(
                f"expected {times} deliveries of each record to group {group}, found\n"
                f"{listed}{rest}"
            )
