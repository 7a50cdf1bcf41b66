"""The commands of the transcripts of share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.records.share_group import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupTargetAssignmentMemberKey,
)
from tests.coordinator.harness import context
from tests.transcripts.consumer_group_commands import ConsumerTranscript

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.types import Uuid

_ASSIGNMENTS = (ShareGroupTargetAssignmentMemberKey, ShareGroupCurrentMemberAssignmentKey)
ALTERED_TOPIC = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
DELETED_TOPIC = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic


class ShareTranscript(ConsumerTranscript):
    """Members of share groups, with the client's name as their member id.

    Which of several partitions a member gets depends on hashes of topic ids in Kafka: an assignment
    is shown as the number of partitions of each topic.
    """

    def _by_name(self, partitions: Iterable[tuple[Uuid, Iterable[int]]]) -> str:
        names = self.world.topics.topic_name
        counts = ((names(topic_id), len(list(indexes))) for topic_id, indexes in partitions)
        return ",".join(sorted(f"{name}x{count}" for name, count in counts if count))

    def _shown_record(self, key: Any, value: Any) -> str:
        if value is not None and isinstance(key, _ASSIGNMENTS):
            is_target = isinstance(key, ShareGroupTargetAssignmentMemberKey)
            parts = value.topic_partitions if is_target else value.assigned_partitions
            epoch = "" if is_target else value.member_epoch
            counts = self._by_name((one.topic_id, one.partitions) for one in parts)
            return f"{type(key).__name__} {key.group_id} {key.member_id} {epoch} {counts}"
        return super()._shown_record(key, value)

    def do_share(self, client: str, **options: str) -> None:
        """Send a ShareGroupHeartbeat; with epoch 0 one with topics."""
        key = self._key(client, options)
        epoch = int(options.get("epoch", str(self.generations.get(key, 0))))
        topics = options.get("topics", "t" if epoch == 0 else "-")
        request = ShareGroupHeartbeatRequest(
            group_id=options.get("group", "g"),
            member_id=options.get("member", client).replace("-", "", options.get("member") == "-"),
            member_epoch=epoch,
            rack_id=options.get("rack"),
            subscribed_topic_names=None
            if topics == "-"
            else [one for one in topics.split("+") if one],
        )
        pending = self.world.coordinator.share.heartbeat(request, context(1, client))

        def shown(answer: Any) -> str:
            if answer.error_code:
                return f"{ErrorCode(answer.error_code).name} {answer.error_message}"
            self.generations[key] = max(0, answer.member_epoch)
            if answer.assignment is None:
                return f"epoch={answer.member_epoch} every {answer.heartbeat_interval_ms}"
            parts = ((one.topic_id, one.partitions) for one in answer.assignment.topic_partitions)
            return f"epoch={answer.member_epoch} [{self._by_name(parts)}]"

        self._report(f"share {client}", pending, shown)

    def do_describe_share(self, **options: str) -> None:
        request = ShareGroupDescribeRequest(
            group_ids=options.get("group", "g").split(","), include_authorized_operations=False
        )
        pending = self.world.coordinator.share.describe(request, context(1))

        def shown(answer: Any) -> str:
            return " ; ".join(
                f"{g.group_id} {ErrorCode(g.error_code).name} {g.error_message} "
                f"{g.group_state or '-'} "
                f"epoch={g.group_epoch} assignment={g.assignment_epoch} {g.assignor_name or '-'} "
                + " ".join(
                    f"{m.member_id}/{m.member_epoch}/{m.rack_id or '-'}/{m.client_id}:"
                    f"{'+'.join(sorted(m.subscribed_topic_names))}:"
                    + self._by_name(
                        (part.topic_id, part.partitions) for part in m.assignment.topic_partitions
                    )
                    for m in g.members
                )
                for g in answer.groups
            ).rstrip()

        self._report("describe-share", pending, shown)

    def do_share_alter(self, **options: str) -> None:
        topic, _, index = options.get("at", "t-0").rpartition("-")
        part = ALTERED_TOPIC.AlterShareGroupOffsetsRequestPartition(
            partition_index=int(index), start_offset=int(options.get("offset", "0"))
        )
        request = AlterShareGroupOffsetsRequest(
            group_id=options.get("group", "g"),
            topics=[ALTERED_TOPIC(topic_name=topic, partitions=[part])],
        )
        pending = self.world.coordinator.share_offsets.alter(request)

        def shown(answer: Any) -> str:
            return f"{ErrorCode(answer.error_code).name} {answer.error_message} " + " ".join(
                f"{one.topic_name}-{part.partition_index}:{ErrorCode(part.error_code).name}:"
                f"{part.error_message}"
                for one in answer.responses
                for part in one.partitions
            )

        self._report("share-alter", pending, shown)

    def do_share_delete(self, **options: str) -> None:
        topics = options.get("at", "t").split("+")
        request = DeleteShareGroupOffsetsRequest(
            group_id=options.get("group", "g"),
            topics=[DELETED_TOPIC(topic_name=one) for one in topics],
        )
        pending = self.world.coordinator.share_offsets.delete(request)

        def shown(answer: Any) -> str:
            return f"{ErrorCode(answer.error_code).name} {answer.error_message} " + " ".join(
                f"{one.topic_name}:{ErrorCode(one.error_code).name}:{one.error_message}"
                for one in answer.responses
            )

        self._report("share-delete", pending, shown)
