"""The share groups of one shard, with what their decisions depend on.

Kafka: the share part of org.apache.kafka.coordinator.group.GroupMetadataManager's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.coordinator.group.config import ShareGroupConfig
from ottla.coordinator.group.kinds import KindOfGroups
from ottla.coordinator.group.share.group import ShareGroup
from ottla.protocol.records.share_group import ShareGroupMetadataKey

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.groups import ConsumerGroups


@dataclass(slots=True, eq=False, kw_only=True)
class ShareGroups(KindOfGroups[ShareGroup, ShareGroupConfig]):
    """The state and dependencies of the modules of this package.

    consumer has the hashes of topics, which are the same for all kinds of groups.
    """

    kind = "Share"
    group_class = ShareGroup
    epoch_key = ShareGroupMetadataKey

    consumer: ConsumerGroups
