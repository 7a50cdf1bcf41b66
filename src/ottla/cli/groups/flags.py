"""Flags of `consumer-groups` that select offsets.

Kafka: org.apache.kafka.tools.consumer.group.ConsumerGroupCommandOptions.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import click


class GroupCommandError(Exception):
    """An error that ends the tool, with Kafka's text."""


class GroupFlags(NamedTuple):
    """The flags that select offsets and the target of a reset."""

    group: tuple[str, ...]
    topic: tuple[str, ...]
    all_topics: bool
    to_offset: int | None
    to_datetime: str | None
    by_duration: str | None
    to_earliest: bool
    to_latest: bool
    shift_by: int | None
    from_file: str | None
    to_current: bool
    dry_run: bool
    execute: bool
    export: bool

    @property
    def has_many(self) -> bool:
        """Whether each line of a file names its group: unless there is exactly one --group."""
        return len(self.group) != 1


def topic_argument(argument: str) -> tuple[str, list[int] | None]:
    """Parse topic or topic:0,1; None means all partitions."""
    topic, found, ids = argument.partition(":")
    if not found:
        return topic, None
    if not topic or not ids or ":" in ids:
        raise click.UsageError(
            f"Invalid topic arg '{argument}', expected topic name and partitions"
        )
    if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", ids):
        raise click.UsageError(f"Invalid partition '{ids}' specified in topic arg '{argument}''")
    return topic, [int(one) for one in ids.split(",")]
