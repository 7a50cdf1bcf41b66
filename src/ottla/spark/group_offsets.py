"""The ordinary group of a streaming query: its committed offsets follow each finished micro-batch.

Lag is then seen by every tool, whatever the query writes to. Spark asks for the next micro-batch
once the one before is done, the last one of availableNow included; then the offsets are committed.
Where the exactly-once sink commits for the same group, this module leaves the offsets to it. A
decision that stays the same over a micro-batch is of a sink that the query had before.

Each commit is marked in its metadata. Offsets without the mark were reset while the query was
stopped: it goes on from them.

Kafka: none; requested as SPARK-27549.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.coordination import Committed, Coordination
from ottla.spark.decision import Participant, is_decision
from ottla.spark.exactly_once import DRIVER_TIMEOUT_MS, driver_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.cluster_reader import ClusterReader
    from ottla.spark.offsets import SourceOffsets
    from ottla.types import TopicPartition

log = logging.getLogger("ottla.spark")

MARK: Final = '{"committed-by":"spark"}'
RENEWAL_S: Final = 6 * 3600.0
"""How often an idle query commits again: the offsets of a group without members expire
(offsets.retention.minutes, a week by default)."""


class GroupOffsets:
    """Commits the offsets of one query; a commit that fails later does not end the query."""

    def __init__(self, group_id: str, cluster: ClusterReader) -> None:
        self._group_id = group_id
        self._coordination = Coordination(cluster)
        self._last: dict[TopicPartition, int] = {}
        self._decision: set[str] = set()
        """The sink's decision after the micro-batch before."""
        self._renewed_s = time.monotonic()
        self._has_failed = False

    def begin(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit where a new query starts; KafkaError where the group is another's."""
        try:
            if not self._found_decision():
                self._commit(positions)
        except KafkaError as error:
            raise KafkaError(error.code, f"group {self._group_id}: {_reason(error)}") from error

    def resets(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets that were reset since the query stopped at these positions."""
        return {
            part: one.offset
            for part, one in self._coordination.committed(self._group_id).items()
            if part in positions and one.offset != positions[part] and not _is_own(one.metadata)
        }

    def finished(self, offsets: SourceOffsets) -> None:
        """Commit the end of a finished micro-batch, or an idle query's offsets now and again."""
        is_due = time.monotonic() - self._renewed_s >= RENEWAL_S
        if offsets.positions == self._last and not is_due:
            return
        try:
            if not self._is_decided(again=is_due):
                self._commit(offsets.positions, again=is_due)
        except KafkaError as error:
            self._report(error)
        else:
            self._last, self._has_failed = dict(offsets.positions), False
            self._renewed_s = time.monotonic()

    def _is_decided(self, *, again: bool) -> bool:
        """Whether the sink has committed the micro-batch; a decision is renewed if that is due."""
        before, self._decision = self._decision, self._found_decision()
        if not self._decision:
            return False
        if again:
            self._renew_decision()
        elif self._decision == before:
            log.warning(
                "group %s has a decision of the exactly-once sink, but the query writes elsewhere "
                "now: the group's offsets follow the query",
                self._group_id,
                extra={"event": "spark.group"},
            )
            return False
        return True

    def _found_decision(self) -> set[str]:
        known = self._coordination.committed(self._group_id)
        return {
            committed.metadata for committed in known.values() if is_decision(committed.metadata)
        }

    def _commit(self, positions: Mapping[TopicPartition, int], *, again: bool = False) -> None:
        known = self._coordination.committed(self._group_id)
        changed = {
            part: Committed(offset, MARK)
            for part, offset in positions.items()
            if again or known.get(part) != Committed(offset, MARK)
        }
        if changed:
            self._coordination.commit(self._group_id, changed)

    def _renew_decision(self) -> None:
        """Commit a sink's decision again, as its driver: another driver cannot decide meanwhile."""
        name = driver_id(self._group_id)
        driver = self._coordination.init_producer(name, DRIVER_TIMEOUT_MS)
        known = self._coordination.committed(self._group_id)
        self._coordination.add_offsets(name, driver, self._group_id, known)
        self._coordination.end(Participant(name, *driver[:3]), committed=True)

    def _report(self, error: KafkaError) -> None:
        """Write one line for failures in a row."""
        if self._has_failed:
            return
        self._has_failed = True
        log.warning(
            "the offsets of group %s are not committed: %s",
            self._group_id,
            _reason(error),
            extra={"event": "spark.group"},
        )


def _reason(error: KafkaError) -> str:
    if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
        return "the group has members; choose another kafka.group.id"
    return error.message


def _is_own(metadata: str) -> bool:
    return metadata == MARK or is_decision(metadata)
