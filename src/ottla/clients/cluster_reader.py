"""Topics, leaders and offsets of a cluster, without a consumer: for Spark's processes and tables.

Kafka: none; org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin asks the same questions.

Brokers may be unavailable for a while: requests are retried until the API timeout, whose error is
one line.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ottla.clients.blocking_runtime import BlockingRuntime
from ottla.clients.metadata import ClusterMetadata
from ottla.clients.offsets import OffsetQuery, is_retried
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.errors.base import topic_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from ottla.clients.metadata import TopicMetadata
    from ottla.clients.settings import ValidatedSettings
    from ottla.types import Node, TopicPartition, Uuid

T = TypeVar("T")
NEW_TOPIC_TIMEOUT_MS = 3000
"""How long a missing topic may still appear: its creation has to reach the brokers' metadata."""
NEW_TOPIC_POLL_MS = 200


class TopicLayout(NamedTuple):
    """A topic's metadata; leaders by partition, None without a leader."""

    name: str
    topic_id: Uuid
    leaders: dict[int, Node | None]
    is_internal: bool = False


class TopicSelection(Protocol):
    """Topics by a pattern, by name, or of single partitions."""

    @property
    def pattern(self) -> str:
        """A regular expression of names; "" for none."""

    @property
    def names(self) -> tuple[str, ...]:
        """Topics by name."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The only partitions to read; none for all."""


class ClusterReader:
    """Reads topics, leaders and offsets of one cluster; for one thread."""

    def __init__(
        self,
        settings: ValidatedSettings,
        *,
        api_timeout_ms: int = 60_000,
        first_answer_ms: int | None = None,
        describe: Callable[[str], str] = str,
    ) -> None:
        """Take settings; `describe` puts the names of the caller's options into error texts."""
        settings.client_id = settings.client_id or "ottla"
        metadata = ClusterMetadata(max_age_ms=settings.metadata_max_age_ms, allow_auto_create=False)
        self.runtime = BlockingRuntime(settings, metadata)
        self.client = self.runtime.client
        self._describe = describe
        self._api_timeout_ms = api_timeout_ms
        self._first_answer_ms = min(api_timeout_ms, first_answer_ms or api_timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self.runtime.close_all()

    def deadline_ms(self) -> int:
        """Return when a call that begins now ends: earlier while no broker has answered."""
        has_answered = self.client.metadata.updated_ms >= 0
        timeout_ms = self._api_timeout_ms if has_answered else self._first_answer_ms
        return self.runtime.now_ms() + timeout_ms

    def retry(self, attempt: Callable[[float], T]) -> T:
        """Call attempt(deadline in ms) until it succeeds; raise fatal errors, and at the end."""
        deadline_ms = self.deadline_ms()
        failures = 0
        while True:
            try:
                return attempt(deadline_ms)
            except KafkaError as error:
                failures += 1
                backoff_ms = self.client.backoff.after(failures)
                is_late = self.runtime.now_ms() + backoff_ms > deadline_ms
                if not is_retriable(error) or is_late:
                    raise
            self.runtime.sleep(backoff_ms)

    # ------------------------------------------------------------ topics

    def topics(self, selection: TopicSelection) -> dict[str, TopicLayout]:
        """Return the selected topics with their leaders; KafkaError for a missing one.

        For an assignment only the assigned partitions are in `leaders`.
        """
        if selection.pattern:
            everything = self.retry(lambda deadline_ms: self._metadata(None, deadline_ms))
            pattern = re.compile(selection.pattern)
            return {
                name: topic
                for name, topic in sorted(everything.items())
                if pattern.fullmatch(name) and not topic.is_internal
            }
        topics = self.named_topics(selection.names)
        if not selection.partitions:
            return topics
        assigned: dict[str, dict[int, Node | None]] = {name: {} for name in topics}
        for topic, partition in selection.partitions:
            leaders = topics[topic].leaders
            if partition not in leaders:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic!r} has partitions 0 to {len(leaders) - 1}, not {partition}",
                )
            assigned[topic][partition] = leaders[partition]
        return {name: topics[name]._replace(leaders=leaders) for name, leaders in assigned.items()}

    def named_topics(
        self, names: Iterable[str], *, may_create: bool = False
    ) -> dict[str, TopicLayout]:
        """Return topics by name, waiting a moment for new ones; KafkaError for a missing one.

        With `may_create` brokers make missing ones, if they make topics for producers at all.
        """
        requested = sorted(names)
        metadata = self.client.metadata
        metadata.allow_auto_create = may_create
        try:
            return self.retry(lambda deadline_ms: self._named_topics(requested, deadline_ms))
        finally:
            metadata.allow_auto_create = False  # those that are only looked up, or gone by now

    def _named_topics(self, requested: list[str], deadline_ms: float) -> dict[str, TopicLayout]:
        missing_until_ms = self.runtime.now_ms() + NEW_TOPIC_TIMEOUT_MS
        while True:
            found = self._metadata(requested, deadline_ms)
            missing = [name for name in requested if name not in found]
            if not missing:
                return found
            if self.runtime.now_ms() > missing_until_ms:
                break
            self.runtime.sleep(NEW_TOPIC_POLL_MS)
        everything = self._metadata(None, deadline_ms)
        existing = [name for name in everything if not name.startswith("__")]
        near = get_close_matches(missing[0], existing, n=1, cutoff=0.6)
        servers = ",".join(self.client.settings.bootstrap_servers)
        create = f"ottla topics --bootstrap-server {servers} --create --topic {missing[0]}"
        hint = f"did you mean {near[0]!r}?" if near else f"create it: {create}"
        # INVALID_TOPIC_EXCEPTION instead of the retriable code: waiting longer will not help
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"there is no topic {missing[0]!r}; {hint}"
        )

    def existing_topics(self, names: Iterable[str]) -> dict[str, TopicLayout]:
        """Return those of the topics that exist, without waiting for others."""
        requested = sorted(names)
        if not requested:
            return {}
        return self.retry(lambda deadline_ms: self._metadata(requested, deadline_ms))

    def _metadata(self, names: list[str] | None, deadline_ms: float) -> dict[str, TopicLayout]:
        metadata = self.client.metadata
        self.runtime.wait_until(lambda: not self.client.metadata.is_refreshing, deadline_ms)
        metadata.all_topics = names is None
        metadata.set_topics(names or ())
        self._refresh(deadline_ms)
        found: dict[str, TopicLayout] = {}
        for name in metadata.topics if names is None else names:
            if not _is_missing(metadata.topics.get(name)):
                topic = metadata.topics[name]
                leaders = {
                    partition.partition: metadata.brokers.get(partition.leader)
                    for partition in topic.partitions
                }
                found[name] = TopicLayout(topic.name, topic.topic_id, leaders, topic.is_internal)
        return found

    def _refresh(self, deadline_ms: float) -> None:
        pending = self.client.refresh(without_delay=True)
        self.runtime.wait_until(lambda: pending.done, deadline_ms)
        if pending.done:
            pending.value  # noqa: B018 - raises the error of the refresh
        elif not self.client.is_reachable:
            error = self.client.unreachable()
            raise type(error)(self._describe(error.message))
        else:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no metadata response in time")

    # ------------------------------------------------------------ offsets

    def offsets(
        self, requested: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, int]:
        """Return the offset for each partition's timestamp in ms; -2 earliest, -1 latest.

        Offset -1: there is no record at or after the timestamp. Retries until the API timeout.
        """
        self.client.metadata.add_topics({part.topic for part in requested})

        def attempt(deadline_ms: float) -> dict[TopicPartition, int]:
            query = OffsetQuery(
                self.client,
                requested,
                committed_only=bool(isolation_level),
                deadline_ms=deadline_ms,
            )
            found = self.runtime.run(query)
            return {part: answer.offset for part, answer in found.items()}

        return self.retry(attempt)


OLD_OFFSETS = "the offsets of the old one mean nothing in it; start the query with a new checkpoint"
"""What a reader of a recreated topic is advised."""


class TopicRecreated(KafkaError):
    """A topic was deleted and created again while the old one was in use."""

    def __init__(self, topic: str, advice: str) -> None:
        super().__init__(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"topic {topic!r} was deleted and created again: {advice}",
        )


def is_retriable(error: KafkaError) -> bool:
    """Whether an error may be temporary: lost connections, moved leaders, retriable codes."""
    if isinstance(error, (CorruptMessage, TopicRecreated)):
        return False
    return is_retried(error)


def _is_missing(topic: TopicMetadata | None) -> bool:
    if topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return True
    if topic.error not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
        raise topic_error(topic.name, topic.error)
    return False
