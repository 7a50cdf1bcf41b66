"""The groups of a shard: one table for all kinds, which are found by name.

Kafka: GroupMetadataManager.{groups, group, getOrMaybeCreate…}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from ottla.coordinator.group.classic.group import ClassicGroup, StoredGroup
from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.consumer.kind import ConsumerGroups
from ottla.coordinator.group.offsets.committed import Offsets
from ottla.coordinator.group.share.kind import ShareGroups
from ottla.coordinator.group.streams.kind import StreamsGroups
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.group_kind import GroupEnvironment, GroupKind
    from ottla.coordinator.group.member_group import Group
    from ottla.coordinator.group.share.group import ShareGroup
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.runtime import CoordinatorRecord

    AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup | StreamsGroup | ShareGroup
    Committer: TypeAlias = ClassicGroup | ConsumerGroup | StreamsGroup
    Kinds: TypeAlias = tuple[type[GroupKind[Any, Any, Any, Any]], ...]

KINDS: Final[Kinds] = (ConsumerGroups, StreamsGroups, ShareGroups)
"""All kinds of groups with members, but for the classic ones."""

K = TypeVar("K")


class Groups:
    """Groups of all kinds by name; simple ones only have offsets."""

    def __init__(
        self, environment: GroupEnvironment, new_uuid: Callable[[], str], kinds: Kinds = KINDS
    ) -> None:
        self.by_id = environment.table
        self.hashes = environment.hashes
        self.offsets = Offsets(environment.registry)
        self.classic = ClassicGroups(environment, new_uuid)
        self.kinds: dict[type[Any], Any] = {kind: kind(environment) for kind in kinds}
        self.kind_of_group = {kind.group_class: kind for kind in self.kinds.values()}
        self.kind_of_record = {
            record.key: kind for kind in self.kinds.values() for record in kind.record_types()
        }
        self.consumer = self.of_kind(ConsumerGroups)
        self.streams = self.of_kind(StreamsGroups)
        self.share = self.of_kind(ShareGroups)

    def of_kind(self, kind: type[K]) -> K:
        """Return what decides about the groups of a kind."""
        groups: K = self.kinds[kind]
        return groups

    def find(self, group_id: str) -> AnyGroup | None:
        """Return the group; None if it does not exist."""
        group: AnyGroup | StoredGroup | None = self.by_id.get(group_id)
        if group is not None and not isinstance(group, StoredGroup):
            return group
        return self.classic.live.get(group_id) or self.classic.revive(group_id, group)

    def get(self, group_id: str) -> AnyGroup:
        """Return the group; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def committer(self, group_id: str) -> Committer | None:
        """Return the group that commits offsets; None if it does not exist.

        GROUP_ID_NOT_FOUND for a group of a kind that has none.
        """
        group = self.find(group_id)
        if group is not None and not group.has_offsets:
            text = f"Group {group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        return cast("Committer | None", group)

    def exists_at(self, group_id: str, epoch: int) -> bool:
        """Whether the group exists in the committed state."""
        return self.by_id.get_at(group_id, epoch) is not None

    def ids_at(self, epoch: int) -> list[str]:
        """Return the ids of all groups in the committed state, in order of appearance."""
        return list(self.by_id.at(epoch))

    def ids(self) -> list[str]:
        """Return the ids of all groups, including live ones that are not in the log yet."""
        return list(dict.fromkeys((*self.by_id, *self.classic.live)))

    def all(self) -> list[Group]:
        """Return all groups but simple ones, including live ones that are not in the log yet."""
        modern = [group for group in self.by_id.values() if type(group) is not StoredGroup]
        return [*modern, *self.classic.shown()]

    def check_deletion(self, group: Group) -> None:
        """Raise NON_EMPTY_GROUP for a group that may not be deleted."""
        kind = self.kind_of_group.get(type(group))
        (kind or self.classic).check_deletion(group)

    def tombstones(self, group: Group) -> list[CoordinatorRecord]:
        """Return the records that remove a group, without its offsets."""
        kind = self.kind_of_group.get(type(group))
        return (kind or self.classic).group_tombstones(group)

    def topics_changed(self, names: Iterable[str]) -> None:
        """Compare the metadata of all groups that read these topics at their next heartbeat."""
        changed = frozenset(names)
        self.hashes.topics_changed(changed)
        for group in self.by_id.values():
            if type(group) is not StoredGroup and group.reads_any(changed):
                group.fresh_epoch = None
