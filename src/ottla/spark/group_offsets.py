"""The ordinary group of a streaming query: its committed offsets follow each finished micro-batch.

Lag is then seen by every tool, whatever the query writes to. Spark asks for the next micro-batch
once the one before is done, the last one of availableNow included; then the offsets are committed.
Where the exactly-once sink commits for the same group, this module leaves the offsets to it.

Kafka: none; asked for as SPARK-27549.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.coordination import Committed, Coordination
from ottla.spark.decision import is_decision

if TYPE_CHECKING:
    from ottla.spark.cluster import ClusterReader
    from ottla.spark.offsets import Offsets
    from ottla.types import TopicPartition

log = logging.getLogger("ottla.spark")


class GroupOffsets:
    """Commits the offsets of one query; a commit that fails does not end the query."""

    def __init__(self, group_id: str, cluster: ClusterReader) -> None:
        self._group_id = group_id
        self._coordination = Coordination(cluster)
        self._last: dict[TopicPartition, int] = {}
        self._has_failed = False

    def finished(self, offsets: Offsets) -> None:
        """Commit the end of a finished micro-batch, if it is another one than before."""
        if offsets.positions == self._last:
            return
        try:
            self._commit(offsets.positions)
        except KafkaError as error:
            self._report(error)
        else:
            self._last, self._has_failed = dict(offsets.positions), False

    def _commit(self, positions: dict[TopicPartition, int]) -> None:
        known = self._coordination.committed(self._group_id)
        if any(is_decision(one.metadata) for one in known.values()):
            return
        changed = {
            part: Committed(offset, "")
            for part, offset in positions.items()
            if part not in known or known[part].offset != offset
        }
        if changed:
            self._coordination.commit(self._group_id, changed)

    def _report(self, error: KafkaError) -> None:
        """Write one line for failures in a row."""
        if self._has_failed:
            return
        self._has_failed = True
        reason = error.message
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            reason = "the group has members; choose another kafka.group.id"
        log.warning(
            "the offsets of group %s are not committed: %s",
            self._group_id,
            reason,
            extra={"event": "spark.group"},
        )
