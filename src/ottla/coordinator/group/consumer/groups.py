"""The consumer groups of one shard, with what their decisions depend on.

Kafka: the consumer part of org.apache.kafka.coordinator.group.GroupMetadataManager's state.

`by_id` is replayed state. The timers, `topic_hashes` and `topics_version` are soft.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordinator.group.config import ConsumerGroupConfig
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.kinds import KindOfGroups
from ottla.protocol.records.consumer_group import ConsumerGroupMetadataKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.coordinator.group.consumer.member import ConsumerMember
    from ottla.coordinator.runtime import Result


Downgrade: TypeAlias = "Callable[[ConsumerGroup, Sequence[ConsumerMember]], Result[None] | None]"


def _stays(_group: ConsumerGroup, _leaving: Sequence[ConsumerMember]) -> Result[None] | None:
    return None


@dataclass(slots=True, eq=False, kw_only=True)
class ConsumerGroups(KindOfGroups[ConsumerGroup, ConsumerGroupConfig]):
    """The state and dependencies of the modules of this package.

    new_member_id returns an id for members that bring none. downgrade makes a group classic whose
    last member of the consumer protocol leaves; None where it stays a consumer group.
    """

    kind = "Consumer"
    group_class = ConsumerGroup
    epoch_key = ConsumerGroupMetadataKey

    new_member_id: Callable[[], str]
    downgrade: Downgrade = _stays
    topic_hashes: dict[str, int] = field(default_factory=dict)
    topics_version: int = 0

    def __post_init__(self) -> None:
        KindOfGroups.__post_init__(self)
        self.topics_version = self.topics.metadata_offset

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Forget the hashes of these topics, and compare the metadata of groups that read them."""
        changed = tuple(names)
        self.topics_version = self.topics.metadata_offset
        for name in changed:
            self.topic_hashes.pop(name, None)
        KindOfGroups.on_topics_changed(self, changed)
