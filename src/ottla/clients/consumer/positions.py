"""Positions: from committed offsets, by timestamp, after a leader change.

Kafka: org.apache.kafka.clients.consumer.internals.{OffsetFetcher, OffsetsRequestManager}.
KIP-320 (leader epochs), KIP-447 (stable offsets), KIP-1106 (by_duration).
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.clients.offsets import (
    CommitIdentity,
    is_retriable_read,
    list_offsets_request,
    offset_fetch_request,
    read_offset_fetch,
)
from ottla.clients.pending_errors import PendingErrors
from ottla.errors import ConfigError, ErrorCode, KafkaError, LogTruncationError
from ottla.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clients.client import Client
    from ottla.clients.consumer.subscription import PartitionState, Subscription
    from ottla.clients.coordinator import CoordinatorLookup
    from ottla.clients.settings import ValidatedSettings
    from ottla.purgatory.pending import Pending
    from ottla.types import Uuid

_FETCH_AGAIN = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""Errors after which committed offsets are fetched again: the next heartbeat settles them."""


def read_reset_policy(text: str) -> int | tuple[str, int] | None:
    """Return a special timestamp, None (raise an error), or ("by_duration", milliseconds)."""
    fixed = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP, "none": None}
    if text.lower() in fixed:
        return fixed[text.lower()]
    if text.startswith("by_duration:"):
        return ("by_duration", _duration_ms(text.partition(":")[2]))
    raise ConfigError(
        f"auto.offset.reset: {text!r} is not earliest, latest, none or by_duration:PnDTnHnMn.nS",
    )


def _duration_ms(text: str) -> int:
    pattern = r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"
    match = re.fullmatch(pattern, text)
    if match is None or not any(match.groups()):
        raise ConfigError(f"auto.offset.reset: {text!r} is not a duration like PT1H")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


class Positions:
    """Finds positions for assigned partitions without one, and validates them after elections.

    Order: the group's committed offset; else the reset policy; else an error for the user.
    """

    def __init__(
        self,
        settings: ValidatedSettings,
        client: Client,
        subscription: Subscription,
        coordinator: CoordinatorLookup | None,
        *,
        wall_ms: Callable[[], int],
        member: Callable[[], CommitIdentity] = CommitIdentity,
    ) -> None:
        self.client = client
        self.subscription = subscription
        self.coordinator = coordinator
        self.errors = PendingErrors()
        self._wall_ms = wall_ms
        self._member = member
        self._settings = settings
        self._policy = read_reset_policy(settings.auto_offset_reset)
        self._committed_only = settings.isolation_level == "read_committed"
        self._fetching_committed = False
        self._retry_committed_at_ms = 0
        self._deadline_ms: int | None = None

    def poll(self, now_ms: int) -> None:
        """Send the requests for positions that are missing or need validation."""
        self._deadline_ms = None
        states = self.subscription.partitions.values()
        self._check_epochs(states)
        if any(state.needs_committed for state in states):
            self._fetch_committed(now_ms)
        self._look_up(
            [state for state in states if state.reset_to is not None and not state.lookup_pending],
            now_ms,
        )
        self._validate(
            [state for state in states if state.needs_validation and not state.lookup_pending],
            now_ms,
        )

    def next_deadline_ms(self) -> int | None:
        """Return when a backoff ends."""
        return self._deadline_ms

    def _wake_at(self, when_ms: int) -> None:
        if self._deadline_ms is None or when_ms < self._deadline_ms:
            self._deadline_ms = when_ms

    # ------------------------------------------------------------ committed offsets

    def _fetch_committed(self, now_ms: int) -> None:
        missing = [s for s in self.subscription.partitions.values() if s.needs_committed]
        if self.coordinator is None:
            for state in missing:
                self.reset(state)
            return
        if self._fetching_committed:
            return
        if not self.coordinator.known or self._retry_committed_at_ms > now_ms:
            if self._retry_committed_at_ms > now_ms:  # else it waits for the coordinator
                self._wake_at(self._retry_committed_at_ms)
            return
        self._fetching_committed = True
        request, limit = offset_fetch_request(
            self.coordinator.key,
            [s.topic_partition for s in missing],
            self.client.metadata,
            self._member(),
        )
        names = dict(self.client.metadata.topic_names)
        # A seek meanwhile, perhaps to what is committed by then, makes the answer a stale one.
        requested = {state: state.generation for state in missing}
        self.coordinator.send(request, max_version=limit).on_done(
            lambda done: self._committed_received(done, requested, names)
        )

    def _committed_received(
        self, done: Pending[Any], requested: dict[PartitionState, int], names: dict[Uuid, str]
    ) -> None:
        self._fetching_committed = False
        assert self.coordinator is not None
        try:
            found = read_offset_fetch(done.value, names)
        except KafkaError as error:
            self._committed_failed(error)
            return
        for state, generation in requested.items():
            if not state.needs_committed or state.generation != generation:
                continue
            answer = found.get(state.topic_partition)
            if isinstance(answer, KafkaError):
                self._committed_failed(answer, state)
            elif answer is None:
                self.reset(state)
            else:
                state.seek(answer.offset, answer.leader_epoch)
                self._found(state, "the committed offset")

    def _committed_failed(self, error: KafkaError, state: PartitionState | None = None) -> None:
        assert self.coordinator is not None
        self.coordinator.note_error(error.code)
        self._retry_committed_at_ms = self.client.now_ms + self._settings.retry_backoff_ms
        if error.code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self.client.metadata.mark_stale()
        elif not error.is_retriable and error.code not in _FETCH_AGAIN:
            self.errors.add(error, state)

    # ------------------------------------------------------------ reset by policy

    def reset(self, state: PartitionState) -> None:
        """Apply auto.offset.reset to a partition without a valid position."""
        policy = self._policy
        if policy is None:
            text = f"no offset for {state.topic_partition}: nothing valid is committed and "
            # The user may seek, or commit by other means: query again.
            self._retry_committed_at_ms = self.client.now_ms + self._settings.retry_backoff_ms
            self.errors.add(
                KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text + "auto.offset.reset is none"),
                state,
            )
            return
        if isinstance(policy, tuple):
            policy = max(self._wall_ms() - policy[1], 0)
        state.request_reset(policy)

    def _look_up(self, states: list[PartitionState], now_ms: int) -> None:
        by_leader: dict[int, list[PartitionState]] = {}
        for state in states:
            leader = self._leader_now(state, now_ms)
            if leader >= 0:
                by_leader.setdefault(leader, []).append(state)
        for leader, group in by_leader.items():
            request = list_offsets_request(
                {s.topic_partition: s.reset_to or 0 for s in group},
                self.client.metadata,
                committed_only=self._committed_only,
                timeout_ms=self._settings.request_timeout_ms,
            )
            requested = {s.topic_partition: (s, s.generation) for s in group}
            for state in group:
                state.lookup_pending = True
            self._send(leader, request, requested, self._offset_found)

    def _leader_now(self, state: PartitionState, now_ms: int) -> int:
        if state.retry_at_ms > now_ms:
            self._wake_at(state.retry_at_ms)
            return -1
        leader = self.client.metadata.leader(state.topic_partition)
        if leader < 0:
            self.client.metadata.add_topics((state.topic_partition.topic,))
            self.client.metadata.mark_stale()
        return leader

    def _send(
        self,
        leader: int,
        request: Any,
        requested: dict[TopicPartition, tuple[PartitionState, int]],
        handle: Callable[[PartitionState, Any], None],
    ) -> None:
        def answered(done: Pending[Any]) -> None:
            current = {
                key: state
                for key, (state, generation) in requested.items()
                if state.generation == generation
            }
            for state in current.values():
                state.lookup_pending = False
            if done.error is not None:
                for state in current.values():
                    self._try_again(state, done.error)
                return
            for topic in done.value.topics:
                name = getattr(topic, "name", None) or topic.topic
                for partition in topic.partitions:
                    index = (
                        partition.partition
                        if hasattr(partition, "partition")
                        else partition.partition_index
                    )
                    known = current.get(TopicPartition(name, index))
                    if known is None:
                        continue
                    if partition.error_code:
                        self._try_again(known, KafkaError(partition.error_code))
                    else:
                        handle(known, partition)

        self.client.send(leader, request).on_done(answered)

    def _try_again(self, state: PartitionState, error: Exception) -> None:
        state.retry_at_ms = self.client.now_ms + self._settings.retry_backoff_ms
        self.client.metadata.mark_stale()
        if not (isinstance(error, KafkaError) and is_retriable_read(error)):
            code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
            self.errors.add(KafkaError(code, f"{state.topic_partition}: {error}"), state)

    def _offset_found(self, state: PartitionState, answer: Any) -> None:
        if answer.offset < 0:  # the time is after the newest record: use the end
            state.request_reset(LATEST_TIMESTAMP)
            return
        state.seek(answer.offset)
        state.leader_epoch = state.validated_epoch = answer.leader_epoch
        self._found(state, f"as seek or auto.offset.reset={self._settings.auto_offset_reset} says")

    def _found(self, state: PartitionState, why: str) -> None:
        text = "%s: reading starts at offset %s, %s"
        self.client.trace.add("fetch", text, state.topic_partition, state.position, why)

    # ------------------------------------------------------ validation after elections, KIP-320

    def _check_epochs(self, states: Iterable[PartitionState]) -> None:
        """Mark positions for validation that were read under an older leader epoch."""
        partition = self.client.metadata.partition
        for state in states:
            epoch = state.leader_epoch
            if epoch < 0 or state.position is None or state.needs_validation:
                continue
            known = partition(state.topic_partition)
            if known is not None and epoch < known.leader_epoch > state.validated_epoch:
                state.needs_validation = True

    def _validate(self, states: list[PartitionState], now_ms: int) -> None:
        for state in states:
            leader = self._leader_now(state, now_ms)
            if leader < 0:
                continue
            known = self.client.metadata.partition(state.topic_partition)
            assert known is not None
            if known.leader_epoch < 0:
                state.needs_validation = False
                continue
            topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
            request = OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    topic(
                        topic=state.topic_partition.topic,
                        partitions=[
                            topic.OffsetForLeaderPartition(
                                partition=state.topic_partition.partition,
                                current_leader_epoch=known.leader_epoch,
                                leader_epoch=state.leader_epoch,
                            )
                        ],
                    )
                ],
            )
            state.lookup_pending = True
            requested = {state.topic_partition: (state, state.generation)}
            found = partial(self._validated, known.leader_epoch, state.position)
            self._send(leader, request, requested, found)

    def _validated(
        self, epoch: int, position: int | None, state: PartitionState, answer: Any
    ) -> None:
        state.needs_validation = False
        if state.position != position:  # buffered records, maybe of a newer epoch, were taken
            return
        state.validated_epoch = epoch
        if state.position is None:
            return
        if answer.end_offset < 0 or answer.leader_epoch < 0:  # the leader has not this epoch
            # As SubscriptionState.maybeCompleteValidation for UNDEFINED_EPOCH_OFFSET: the epoch was
            # truncated, and no offset tells where the logs differ.
            if self._policy is None:
                self._truncated(state, None)
            else:
                self.reset(state)
        elif answer.end_offset < state.fetch_position:
            # The log was truncated below the position: continue from there (KAFKA-2334: not from
            # an end offset that is only lower because a new leader lags).
            cut = answer.end_offset
            if cut < state.position and self._policy is None:
                self._truncated(state, cut)
            elif cut < state.position:
                state.seek(cut)
                state.leader_epoch, state.validated_epoch = answer.leader_epoch, epoch
            else:
                state.drop()
                state.fetch_position = state.position

    def _truncated(self, state: PartitionState, divergent_offset: int | None) -> None:
        """Report lost records to the user, who has no reset policy; validate again, as Kafka."""
        assert state.position is not None
        state.drop()
        state.fetch_position = state.position
        state.needs_validation = True
        state.retry_at_ms = self.client.now_ms + self._settings.retry_backoff_ms
        name, partition = state.topic_partition
        error = LogTruncationError((name, partition, state.position), divergent_offset)
        self.errors.add(error, state)
