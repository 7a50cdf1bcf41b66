"""Waits until a side has applied a change, reads everything back, and cleans up.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.protocol.api_keys import ApiKey
from tests.conformance.sessions.transaction_steps import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.conformance.differential.side import Side
    from tests.conformance.sessions.compare import SessionNormaliser
    from tests.conformance.sessions.memory import Memory

_METRICS = 16
_ALL_BYTES = 1 << 26


class Settling:
    """One side of one session."""

    def __init__(self, side: Side, memory: Memory) -> None:
        self._side = side
        self._memory = memory
        self._led: dict[str, tuple[Any, int]] = {}

    def wait_until_ready(self) -> None:
        """Wait until groups are served and producer ids are given out."""
        self._side.coordinator()
        self._side.once("producer ids", lambda: self._side.until(self._gives_ids, "producer ids"))

    def _gives_ids(self) -> bool:
        answer = self._side.ask(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000
        )
        return bool(answer.error_code == 0)

    def settle(self) -> None:
        """Wait until all changes so far are applied, and learn the ids of topics."""
        self._side.settle()
        for topic in topics_of(self._side, self._memory.prefix):
            known = (topic.topic_id, len(topic.partitions))
            self._memory.topic_ids[topic.name] = topic.topic_id
            if self._led.get(topic.name) != known:
                self._wait_for_leaders(topic.name, len(topic.partitions))
                self._led[topic.name] = known

    def settle_groups(self) -> None:
        """Wait until all that is known of groups is committed."""
        self._side.wait_until_groups_are_committed()

    def settle_transactions(self) -> None:
        """Wait until the markers of all decided transactions are written."""
        self._side.until(self._are_complete, "transactions are complete")

    def _are_complete(self) -> bool:
        names = [name.replace("{}", self._memory.prefix) for name in NAMES]
        answer = self._side.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)
        states = [one.transaction_state for one in answer.transaction_states]
        return not any(state.startswith("Prepare") for state in states)

    def settle_records(self, fields: dict[str, Any]) -> None:
        """Wait until all that a Produce has appended is committed, and all replicas know it."""
        for topic in fields["topic_data"]:
            for one in topic["partition_data"]:
                self._side.wait_until_followed(topic["name"], one["index"])

    def _wait_for_leaders(self, topic: str, partitions: int) -> None:
        self._side.until(lambda: self._side.is_led(topic, partitions), f"{topic} is led")

    def clean_up(self, groups: Iterable[str]) -> None:
        """Delete the session's topics and groups, as far as they have no members."""
        names = [topic.name for topic in topics_of(self._side, self._memory.prefix)]
        if names:
            self._side.ask(ApiKey.DELETE_TOPICS, 5, topic_names=names, timeout_ms=10_000)
        metrics = {"resource_type": _METRICS, "resource_name": f"{self._memory.prefix}-m"}
        removed = [
            {"name": name, "config_operation": 1, "value": None}
            for name in ("interval.ms", "metrics", "match")
        ]
        resource = {**metrics, "configs": removed}
        self._side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        self._remove_quotas()
        own = [name.replace("{}", self._memory.prefix) for name in groups]
        self._side.ask(ApiKey.DELETE_GROUPS, 2, groups_names=own)

    def _remove_quotas(self) -> None:
        """Remove the quotas of the session's entities: later sessions list all of them."""
        request = {"components": [], "strict": False}
        found = self._side.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, **request)
        entries = [
            {
                "entity": [
                    {"entity_type": part.entity_type, "entity_name": part.entity_name}
                    for part in entry.entity
                ],
                "ops": [{"key": one.key, "value": 0.0, "remove": True} for one in entry.values],
            }
            for entry in found.entries or ()
            if any(
                (part.entity_name or "").startswith(self._memory.prefix) for part in entry.entity
            )
        ]
        if entries:
            self._side.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries)


def topics_of(side: Side, prefix: str) -> list[Any]:
    """Return what a side says of the session's topics."""
    answer = side.ask(ApiKey.METADATA, 12, topics=None, allow_auto_topic_creation=False)
    return [topic for topic in answer.topics if topic.name.startswith(f"{prefix}-")]


def read_back(
    side: Side, prefix: str, normaliser: SessionNormaliser, groups: Iterable[str]
) -> dict[str, Any]:
    """Return all records of the session's topics, and its groups with their offsets."""
    found: dict[str, Any] = {}
    for topic in sorted(topics_of(side, prefix), key=lambda topic: topic.name):
        for index in range(len(topic.partitions)):
            batches = list(_batches(side, normaliser, topic.name, index))
            found[f"{topic.name}-{index}"] = batches
    for group in groups:
        name = group.replace("{}", prefix)
        described = side.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[name]).groups[0]
        shown = normaliser(described, 5)
        shown["members"].sort(key=repr)
        found[f"group {name}"] = shown
        request = {"group_id": name, "topics": None}
        offsets = side.ask(ApiKey.OFFSET_FETCH, 9, groups=[request]).groups[0]
        offsets.topics.sort(key=lambda topic: topic.name)
        for topic in offsets.topics:
            topic.partitions.sort(key=lambda partition: partition.partition_index)
        found[f"offsets {name}"] = normaliser(offsets, 9)
    return found


def _batches(side: Side, normaliser: SessionNormaliser, topic: str, index: int) -> Iterator[Any]:
    offset = side.end_offset(topic, index, timestamp=-2)
    end = side.end_offset(topic, index)
    while offset < end:
        partition = {
            "partition": index,
            "fetch_offset": offset,
            "partition_max_bytes": _ALL_BYTES,
        }
        answer = side.ask(
            ApiKey.FETCH,
            11,
            max_wait_ms=0,
            min_bytes=0,
            session_epoch=-1,
            max_bytes=_ALL_BYTES,
            topics=[{"topic": topic, "partitions": [partition]}],
        )
        shown = normaliser(answer.responses[0].partitions[0], 11)
        yield shown
        batches = shown["records"]
        if not batches:
            return
        offset = batches[-1]["base_offset"] + batches[-1]["last_offset_delta"] + 1
