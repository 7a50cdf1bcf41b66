"""The group coordinator's façade: one method per API, request in, pending response out.

Kafka: org.apache.kafka.coordinator.group.GroupCoordinatorService.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group import dispatch, group_admin
from ottla.coordinator.group.classic.join import MAX_MEMBERS_BYTES, make_join
from ottla.coordinator.group.consumer.heartbeat import check_request, check_size_of_names
from ottla.coordinator.group.consumer.kind import ConsumerGroups
from ottla.coordinator.group.descriptions import Descriptions
from ottla.coordinator.group.groups import KINDS
from ottla.coordinator.group.offsets.commit import TransactionalOffsets
from ottla.coordinator.group.offsets.requests import OffsetRequests
from ottla.coordinator.group.responses import join_error, sync_error
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.group.share.offset_requests import ShareOffsetRequests
from ottla.coordinator.group.share.requests import ShareGroupRequests
from ottla.coordinator.group.streams.requests import StreamsRequests
from ottla.coordinator.runtime import CoordinatorRuntime, Result
from ottla.coordinator.runtime.active import RuntimeEnvironment
from ottla.coordinator.runtime.java_hash import partition_for
from ottla.coordinator.runtime.log import error_text, operation_error
from ottla.coordinator.runtime.shard import gather, recover
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.coordinator.group.context import (
        GroupCoordinatorConfig,
        GroupDependencies,
        RequestContext,
    )
    from ottla.coordinator.group.groups import Kinds
    from ottla.coordinator.group.share.requests import SharePersister
    from ottla.coordinator.runtime import CoordinatorLog, EndTransaction
    from ottla.metrics.ledger import Ledger
    from ottla.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
    from ottla.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from ottla.protocol.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from ottla.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from ottla.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
    from ottla.protocol.apis.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )
    from ottla.purgatory.loop import Loop
    from ottla.types import Uuid

PROTOCOL_NAMED_VERSION: Final = 5
"""The first version of SyncGroup that requires the protocol (KIP-559)."""


class GroupCoordinator:
    """Groups of the partitions of `__consumer_offsets` that this node leads.

    new_uuid returns the random part of a member id, in the 36-character form. on_fault is called
    for internal errors; the client receives UNKNOWN_SERVER_ERROR. offsets_partitions returns the
    partition count of `__consumer_offsets`, None before it exists: the setting applies only to the
    creation of the topic, which may have been created with another one. dependencies is what all
    groups need in addition, persister reaches the share coordinators.
    """

    def __init__(  # noqa: PLR0913 - its environment, by name
        self,
        config: GroupCoordinatorConfig,
        *,
        log: CoordinatorLog,
        loop: Loop,
        dependencies: GroupDependencies,
        persister: SharePersister,
        new_uuid: Callable[[], str],
        on_fault: Callable[[Exception], None],
        offsets_partitions: Callable[[], int | None],
        kinds: Kinds = KINDS,
    ) -> None:
        self._config = config
        self._log = log
        self._consumer_settings = dependencies.settings
        topics = dependencies.topics
        self._offsets_partitions = offsets_partitions
        self._runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            RuntimeEnvironment(
                log,
                loop,
                config.offset_commit_timeout_ms,
                on_fault,
                "group",
                config.load_buffer_bytes,
            ),
            lambda environment: GroupShard(environment, config, new_uuid, dependencies, kinds),
        )
        self._descriptions = Descriptions(self._runtime, self.partition_for)
        self.share = ShareGroupRequests(
            self._runtime, self.partition_for, persister, self._descriptions
        )
        self.share_offsets = ShareOffsetRequests(
            self._runtime, self.partition_for, persister, self.share, topics.topic_name
        )
        self._offsets = OffsetRequests(self._runtime, self.partition_for, topics)
        self.streams = StreamsRequests(self._runtime, self.partition_for, self._descriptions)
        self._transactional = TransactionalOffsets(self._runtime, self.partition_for, topics, log)

    @property
    def runtime(self) -> CoordinatorRuntime[GroupShard]:
        """The shards by partition."""
        return self._runtime

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that owns a group."""
        count = self._offsets_partitions() or self._config.offsets_topic_num_partitions
        return partition_for(group_id, count)

    def leads(self, group_id: str) -> bool:
        """Whether this node coordinates a group, or loads it."""
        return self.partition_for(group_id) in self._runtime.partitions

    # ---------------------------------------------------------------- events from the broker

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load a partition of which this node became the leader."""
        self._runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Unload a partition that another node leads, or that was deleted."""
        self._runtime.on_resigned(partition, leader_epoch)

    def on_high_watermark(self, partition: int, offset: int) -> None:
        """Release the responses whose records are committed."""
        self._runtime.on_high_watermark(partition, offset)

    def on_topics_deleted(self, topics: Iterable[tuple[str, Uuid]]) -> None:
        """Delete the offsets of deleted topics, given by name and id."""
        deleted = tuple(topics)
        self._runtime.write_all(lambda shard: shard.delete_topics(deleted))
        for shard in self._runtime.active_shards():
            shard.forget_share_states(deleted)

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Assign the groups that read these topics again: they are new or have changed."""
        changed = tuple(names)
        for shard in self._runtime.active_shards():
            shard.groups.topics_changed(changed)

    def end_transaction(self, partition: int, end: EndTransaction) -> Pending[None]:
        """Write the marker that ends a transaction's pending offsets in a partition."""
        return self._runtime.end_transaction(partition, end)

    def account_in(self, ledger: Ledger) -> None:
        """Register what is kept for clients."""
        # the shares of 4,096 groups are as much again, and a share of more is of small members
        bound_bytes = 2 * MAX_MEMBERS_BYTES * self._config.offsets_topic_num_partitions
        ledger.register("classic_group_members", bound_bytes, self._measure)

    def _measure(self) -> tuple[int, int]:
        count = size_bytes = 0
        for shard in self._runtime.active_shards():
            for group in shard.classic.live.values():
                count += len(group.members)
                size_bytes += group.member_bytes
        return count, size_bytes

    def close(self) -> None:
        """Unload all partitions; pending responses fail with NOT_COORDINATOR."""
        self._runtime.close()

    # ---------------------------------------------------------------- members

    def join_group(
        self, request: JoinGroupRequest, context: RequestContext
    ) -> Pending[JoinGroupResponse]:
        """Join or rejoin; the response is sent at the end of the join phase."""
        answer: Pending[JoinGroupResponse] = Pending()
        session_ms, config = request.session_timeout_ms, self._config
        if not request.group_id:
            _fail_join(answer, request, ErrorCode.INVALID_GROUP_ID)
        elif not (
            config.group_min_session_timeout_ms <= session_ms <= config.group_max_session_timeout_ms
        ):
            _fail_join(answer, request, ErrorCode.INVALID_SESSION_TIMEOUT)
        else:
            call = make_join(request, context, answer)
            self._run_held(
                request.group_id,
                lambda shard: dispatch.join(shard.groups, call),
                lambda code: answer.complete(join_error(code)),
            )
        return answer.then(lambda response: _join_in_version(response, context.api_version))

    def sync_group(
        self, request: SyncGroupRequest, context: RequestContext
    ) -> Pending[SyncGroupResponse]:
        """Return the assignment, once that of the leader is committed."""
        answer: Pending[SyncGroupResponse] = Pending()
        is_named = request.protocol_type is not None and request.protocol_name is not None
        if context.api_version >= PROTOCOL_NAMED_VERSION and not is_named:
            return Pending.of(sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if not request.group_id:
            return Pending.of(sync_error(ErrorCode.INVALID_GROUP_ID))
        self._run_held(
            request.group_id,
            lambda shard: dispatch.sync(shard.groups, request, answer),
            lambda code: answer.complete(sync_error(code)),
        )
        return answer

    def heartbeat(
        self, request: HeartbeatRequest, _context: RequestContext
    ) -> Pending[HeartbeatResponse]:
        """Keep a session alive. Succeeds while loading, because loading restarts all sessions."""
        if not request.group_id:
            return Pending.of(HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID))

        def refuse(error: Exception) -> HeartbeatResponse:
            code = operation_error(error)
            is_loading = code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)

        pending = self._runtime.write(
            self.partition_for(request.group_id),
            lambda shard: dispatch.heartbeat(shard.groups, request),
        )
        return recover(pending, refuse)

    def leave_group(
        self, request: LeaveGroupRequest, context: RequestContext
    ) -> Pending[LeaveGroupResponse]:
        """Remove members; up to version 2 one member, whose error is the response's."""
        if not request.group_id:
            return Pending.of(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        is_single = context.api_version <= 2
        if is_single:
            identity = LeaveGroupRequest.MemberIdentity(member_id=request.member_id)
            request = LeaveGroupRequest(group_id=request.group_id, members=[identity])

        def refuse(error: Exception) -> LeaveGroupResponse:
            code = operation_error(error)
            if code != ErrorCode.UNKNOWN_MEMBER_ID:
                return LeaveGroupResponse(error_code=code)
            return LeaveGroupResponse(
                members=[
                    LeaveGroupResponse.MemberResponse(
                        member_id=identity.member_id,
                        group_instance_id=identity.group_instance_id,
                        error_code=code,
                    )
                    for identity in request.members
                ]
            )

        def in_version(response: LeaveGroupResponse) -> LeaveGroupResponse:
            if is_single and response.members:
                return LeaveGroupResponse(error_code=response.members[0].error_code)
            return response

        pending = self._runtime.write(
            self.partition_for(request.group_id),
            lambda shard: dispatch.leave(shard.groups, request),
        )
        return recover(pending, refuse).then(in_version)

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> Pending[ConsumerGroupHeartbeatResponse]:
        """Join, stay in, change or leave a consumer group."""

        def refuse(error: Exception) -> ConsumerGroupHeartbeatResponse:
            return ConsumerGroupHeartbeatResponse(
                error_code=operation_error(error),
                error_message=error_text(error),
                member_epoch=0,
                heartbeat_interval_ms=0,
            )

        try:
            check_request(request, context.api_version, self._consumer_settings)
        except KafkaError as error:
            return Pending.of(refuse(error))

        def run(shard: GroupShard) -> Result[ConsumerGroupHeartbeatResponse]:
            if request.subscribed_topic_names:
                check_size_of_names(request, self._log.max_batch_bytes(shard.partition))
            return dispatch.consumer_heartbeat(shard.groups, request, context)

        pending = self._runtime.write(self.partition_for(request.group_id), run)
        return recover(pending, refuse)

    # ---------------------------------------------------------------- offsets

    def offset_commit(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> Pending[OffsetCommitResponse]:
        """Commit offsets."""
        return self._offsets.commit(request, context)

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> Pending[TxnOffsetCommitResponse]:
        """Commit offsets as part of a producer's transaction."""
        return self._transactional.commit(request, context)

    def offset_fetch(
        self, request: OffsetFetchRequest, context: RequestContext
    ) -> Pending[OffsetFetchResponse]:
        """Fetch committed offsets of one group or, from version 8 on, of several."""
        return self._offsets.fetch(request, context)

    def offset_delete(
        self, request: OffsetDeleteRequest, _context: RequestContext
    ) -> Pending[OffsetDeleteResponse]:
        """Delete committed offsets of topics that the group does not read."""
        return self._offsets.delete(request)

    # ---------------------------------------------------------------- groups

    def list_groups(
        self, request: ListGroupsRequest, _context: RequestContext
    ) -> Pending[ListGroupsResponse]:
        """List the groups that this node coordinates."""
        listed = self._runtime.read_all(
            lambda shard, epoch: shard.groups.ids_at(epoch),
            lambda shard, epoch, ids: group_admin.list_groups(
                shard.groups, ids, request.states_filter, request.types_filter, epoch
            ),
        ).then(lambda found: ListGroupsResponse(groups=list(found)))
        return recover(
            listed,
            lambda error: ListGroupsResponse(error_code=operation_error(error), groups=[]),
        )

    def describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> Pending[DescribeGroupsResponse]:
        """Describe groups."""
        described = self._descriptions.describe(
            request.groups,
            partial(group_admin.begin_description, context.api_version),
            lambda name, error: _undescribed(name, operation_error(error)),
        )
        return described.then(lambda groups: DescribeGroupsResponse(groups=groups))

    def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest, _context: RequestContext
    ) -> Pending[ConsumerGroupDescribeResponse]:
        """Describe consumer groups."""
        described = self._descriptions.describe_kind(request.group_ids, ConsumerGroups)
        return described.then(lambda groups: ConsumerGroupDescribeResponse(groups=groups))

    def delete_groups(
        self, request: DeleteGroupsRequest, _context: RequestContext
    ) -> Pending[DeleteGroupsResponse]:
        """Delete groups that have no members; of share groups their states first."""
        named = dict.fromkeys(request.groups_names)
        prepared = {name: self.share_offsets.prepare_group_deletion(name) for name in named}
        answer: Pending[DeleteGroupsResponse] = Pending()

        def delete(_done: object) -> None:
            failed = {name: one.value for name, one in prepared.items() if one.value}
            deleted = self._delete_groups([name for name in named if name not in failed])
            deleted.on_done(lambda done: finish(done.value, failed))

        def finish(response: DeleteGroupsResponse, failed: dict[str, ErrorCode]) -> None:
            answer.complete(_with_failed(response, failed))

        gather(list(prepared.values()), lambda _: None).on_done(delete)
        return answer

    def _delete_groups(self, named: Iterable[str]) -> Pending[DeleteGroupsResponse]:

        def delete(partition: int, ids: list[str]) -> Pending[list[group_admin.DeletedGroup]]:
            pending = self._runtime.write(
                partition, lambda shard: group_admin.delete_groups(shard.groups, ids)
            )
            return recover(
                pending,
                lambda error: [
                    group_admin.DeletedGroup(group_id=name, error_code=operation_error(error))
                    for name in ids
                ],
            )

        return gather(
            [delete(*part) for part in self._descriptions.by_partition(named).items()],
            lambda results: DeleteGroupsResponse(
                results=[group for part in results for group in part.value]
            ),
        )

    # ---------------------------------------------------------------- internals

    def _run_held(
        self,
        group_id: str,
        operation: Callable[[GroupShard], Result[None]],
        refuse: Callable[[ErrorCode], object],
    ) -> None:
        """Run an operation that responds by itself, now or later; call refuse if it fails."""

        def finished(done: Pending[None]) -> None:
            if done.error is not None:
                refuse(operation_error(done.error))

        self._runtime.write(self.partition_for(group_id), operation).on_done(finished)


def _with_failed(
    response: DeleteGroupsResponse, failed: dict[str, ErrorCode]
) -> DeleteGroupsResponse:
    """Add the share groups whose states could not be deleted."""
    for name, code in failed.items():
        response.results.append(group_admin.DeletedGroup(group_id=name, error_code=code))
    return response


def _fail_join(
    answer: Pending[JoinGroupResponse], request: JoinGroupRequest, code: ErrorCode
) -> None:
    answer.complete(join_error(code, request.member_id))


def _join_in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Give an empty protocol name the form of the version: "" before version 7, then null."""
    if not response.protocol_name:
        response.protocol_name = "" if version < 7 else None
    return response


def _undescribed(group_id: str, code: ErrorCode) -> group_admin.DescribedGroup:
    return group_admin.DescribedGroup(
        group_id=group_id,
        error_code=code,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )
