"""What a workload knows of a simulated node: what was sent, acknowledged, committed and set.

Kafka: none; after its system tests' verifiable clients.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.types import TopicPartition


class InvariantViolated(AssertionError):
    """What was promised does not hold; the text names the seed."""


class Place(NamedTuple):
    """Where an acknowledged record is."""

    partition: int
    offset: int


class TopicModel:
    """One topic."""

    def __init__(self, name: str, partition_count: int) -> None:
        self.name = name
        self.partition_count = partition_count
        self.sent: set[bytes] = set()
        self.acknowledged: dict[bytes, Place] = {}
        self.possible_settings = {"-1"}
        """Values of retention.bytes: the last acknowledged one, and those not answered since."""
        self.damaged: set[int] = set()
        """Partitions with a rotten bit: what they serve must be right, but they may refuse."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions that were acknowledged."""
        return [TopicPartition(self.name, number) for number in range(self.partition_count)]

    def stored(self, value: bytes, place: Place) -> None:
        """Note an acknowledged record; its partition may be one whose creation was not answered."""
        self.acknowledged[value] = place
        self.partition_count = max(self.partition_count, place.partition + 1)

    def forget_unflushed(self, flushed: dict[TopicPartition, int]) -> None:
        """Promise no longer what a power cut may take."""
        self.acknowledged = {
            value: place
            for value, place in self.acknowledged.items()
            if place.offset < flushed.get(TopicPartition(self.name, place.partition), 0)
        }


class Commit(NamedTuple):
    """An acknowledged commit, and where the log of the group's offsets ended then."""

    offset: int
    log_end_offset: int


class CommitModel:
    """The group's commits of one partition."""

    def __init__(self) -> None:
        self.sent: set[int] = set()
        self.acknowledged: list[Commit] = []

    @property
    def promised(self) -> int:
        """The lowest offset that a look-up may find; -1 for none."""
        return self.acknowledged[-1].offset if self.acknowledged else -1

    def forget_unflushed(self, flushed_offset: int) -> None:
        """Promise no longer what a power cut may take."""
        self.acknowledged = [
            one for one in self.acknowledged if one.log_end_offset <= flushed_offset
        ]


class GroupModel:
    """A consumer group: what it committed, and the state of its partition of the offsets topic."""

    def __init__(self, name: str, offsets_partition: TopicPartition) -> None:
        self.name = name
        self.offsets_partition = offsets_partition
        self.commits: dict[TopicPartition, CommitModel] = {}
        self.is_damaged = False
        """Whether the offsets partition has a rotten bit: the group cannot be served."""
        self._former: dict[TopicPartition, set[int]] = {}
        self._is_truncated = False

    def forget_topic(self, name: str) -> None:
        """Promise nothing for a topic that is deleted."""
        for partition in [one for one in self.commits if one.topic == name]:
            self._former.setdefault(partition, set()).update(self.commits.pop(partition).sent)

    def forget_unflushed(self, flushed_offset: int) -> None:
        """Promise no longer what a power cut may take."""
        for commits in self.commits.values():
            commits.forget_unflushed(flushed_offset)

    def truncated(self, end_offset: int) -> None:
        """Promise no longer what a repair cut off, which may be the deletion of offsets too."""
        self.forget_unflushed(end_offset)
        self._is_truncated = True

    def may_be_found(self, partition: TopicPartition) -> set[int]:
        """Return the offsets that a look-up may find; -1 for none."""
        former = self._former.get(partition, set()) if self._is_truncated else set()
        return self.commits[partition].sent | former | {-1}
