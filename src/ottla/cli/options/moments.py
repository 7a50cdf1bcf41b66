"""Times and offsets as options of commands give them.

Kafka: none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ottla.storage.log.partition_log import parse_partition_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.types import TopicPartition


def parse_moment(text: str) -> int:
    """Return ms since 1970 of an ISO time (UTC unless it says otherwise) or of ms."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(
            f"{text} is no time: give one as 2026-11-28T15:00:00+00:00, or ms since 1970"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def parse_offsets(texts: Iterable[str]) -> tuple[tuple[TopicPartition, int], ...]:
    """Return partitions and offsets of texts `TOPIC-N=OFFSET`."""
    found = []
    for text in texts:
        name, equals, offset = text.rpartition("=")
        try:
            if not equals or not offset.isdecimal():
                raise ValueError(text)
            found.append((parse_partition_name(name), int(offset)))
        except ValueError as error:
            raise click.UsageError(f"{text} is not TOPIC-N=OFFSET, as orders-0=1000") from error
    return tuple(found)
