"""Groups as data: offsets and lag by partition, and the JSON documents of groups.

Kafka: ConsumerGroupCommand, ShareGroupCommand and StreamsGroupCommand compute them while printing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.clients.admin.groups import GroupDescription, MemberDescription
    from ottla.clients.admin.streams_groups import StreamsGroupDescription
    from ottla.clients.blocking import Admin


class ConsumerOffset(NamedTuple):
    """A partition of a consumer group, or a member without partitions; None where unknown."""

    group: str
    topic: str | None
    partition: int | None
    leader_epoch: int | None
    offset: int | None
    end_offset: int | None
    member_id: str | None
    host: str | None
    client_id: str | None

    @property
    def lag(self) -> int | None:
        """Number of records after the committed offset."""
        if self.offset is None or self.end_offset is None or self.offset < 0:
            return None
        return self.end_offset - self.offset


class ShareOffset(NamedTuple):
    """A partition of a share group; None where unknown."""

    topic: str
    partition: int
    start_offset: int | None = None
    leader_epoch: int | None = None
    lag: int | None = None


class StreamsOffset(NamedTuple):
    """A partition that an active task of a streams group reads."""

    topic: str
    partition: int
    offset: int | None
    leader_epoch: int | None
    end_offset: int
    lag: int


def offsets_at(
    admin: Admin, partitions: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """Return the offset of each partition at a time (ms) or a special timestamp.

    Raises the first partition's KafkaError; without partitions there is no request.
    """
    requested = dict.fromkeys(partitions, timestamp)
    offsets = {}
    for partition, outcome in (admin.list_offsets(requested) if requested else {}).items():
        if isinstance(outcome, KafkaError):
            raise outcome
        offsets[partition] = outcome.offset
    return offsets


def consumer_offsets(admin: Admin, group: GroupDescription) -> list[ConsumerOffset]:
    """Return committed and assigned partitions in order, then members without partitions."""
    committed = admin.list_group_offsets(group.group_id)
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *owners})
    ends = admin.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP)) if partitions else {}
    rows = []
    for partition in partitions:
        commit, end, owner = committed.get(partition), ends.get(partition), owners.get(partition)
        rows.append(
            ConsumerOffset(
                group.group_id,
                *partition,
                commit.leader_epoch if commit and commit.leader_epoch >= 0 else None,
                commit.offset if commit and commit.offset >= 0 else None,
                None if end is None or isinstance(end, KafkaError) else end.offset,
                *((owner.member_id, owner.host, owner.client_id) if owner else (None,) * 3),
            )
        )
    idle = [member for member in group.members if not member.assignment]
    return rows + [
        ConsumerOffset(
            group.group_id, *(None,) * 5, member.member_id, member.host, member.client_id
        )
        for member in idle
    ]


def share_offsets(admin: Admin, group: GroupDescription) -> list[ShareOffset]:
    """Return start offsets and lag; raises the first partition's KafkaError."""
    rows = []
    for partition, outcome in sorted(admin.list_share_group_offsets(group.group_id).items()):
        if isinstance(outcome, KafkaError):
            raise outcome
        rows.append(ShareOffset(*partition, **(outcome._asdict() if outcome else {})))
    return rows


def streams_offsets(admin: Admin, group: StreamsGroupDescription) -> list[StreamsOffset]:
    """Return the partitions of active tasks; without a commit, lag counts from the log start."""
    sources = {
        subtopology.subtopology_id: (
            *subtopology.source_topics,
            *subtopology.repartition_source_topics,
        )
        for subtopology in group.subtopologies
    }
    partitions = sorted(
        {
            TopicPartition(topic, number)
            for member in group.members
            for key, numbers in member.assignment.active.items()
            for topic in sources[key]
            for number in numbers
        }
    )
    first = offsets_at(admin, partitions, EARLIEST_TIMESTAMP)
    last = offsets_at(admin, partitions, LATEST_TIMESTAMP)
    committed = admin.list_group_offsets(group.group_id) if partitions else {}
    rows = []
    for partition in partitions:
        commit = committed.get(partition)
        epoch = None if commit is None or commit.leader_epoch < 0 else commit.leader_epoch
        offset, end = (None if commit is None else commit.offset), last[partition]
        lag = end - (first[partition] if offset is None else offset)
        rows.append(StreamsOffset(*partition, offset, epoch, end, lag))
    return rows


def input_topics(group: StreamsGroupDescription) -> set[str]:
    """Return the topics that a streams group reads and does not write."""
    return {name for subtopology in group.subtopologies for name in subtopology.source_topics}


def consumer_document(
    group: GroupDescription, offsets: list[ConsumerOffset] | None
) -> dict[str, object]:
    """Return the JSON of a consumer group; with offsets, its partitions too."""
    rows = [{**row._asdict(), "lag": row.lag} for row in offsets or () if row.topic]
    members = [_member_document(member) for member in group.members]
    names = ("state", "type", "coordinator", "assignor")
    return _document("Consumer", group, names, members, None if offsets is None else rows)


def share_document(group: GroupDescription, offsets: list[ShareOffset] | None) -> dict[str, object]:
    """Return the JSON of a share group; with offsets, its partitions too."""
    rows = [row._asdict() for row in offsets or ()]
    members = [_member_document(member) for member in group.members]
    names = ("state", "coordinator", "group_epoch", "assignment_epoch")
    return _document("Share", group, names, members, None if offsets is None else rows)


def streams_document(
    group: StreamsGroupDescription, offsets: list[StreamsOffset] | None
) -> dict[str, object]:
    """Return the JSON of a streams group; with offsets, its partitions too."""
    rows = [row._asdict() for row in offsets or ()]
    members = [
        {
            **member._asdict(),
            "assignment": member.assignment._asdict(),
            "target_assignment": member.target_assignment._asdict(),
        }
        for member in group.members
    ]
    names = ("state", "coordinator", "group_epoch", "assignment_epoch", "topology_epoch")
    return _document("Streams", group, names, members, None if offsets is None else rows)


def _document(
    kind: str,
    group: GroupDescription | StreamsGroupDescription,
    names: tuple[str, ...],
    members: list[dict[str, object]],
    offsets: Sequence[object] | None,
) -> dict[str, object]:
    if group.state == "Dead":
        text = f"{kind} group '{group.group_id}' does not exist."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
    facts = {name: getattr(group, name) for name in names}
    rows = {} if offsets is None else {"offsets": offsets}
    return {"group": group.group_id, **facts, "members": members, **rows}


def _member_document(member: MemberDescription) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "assignment": [f"{topic}-{number}" for topic, number in member.assignment],
    }
