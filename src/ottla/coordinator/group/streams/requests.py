"""StreamsGroupHeartbeat and StreamsGroupDescribe: request in, pending response out.

Kafka: org.apache.kafka.coordinator.group.GroupCoordinatorService.{streamsGroupHeartbeat,
streamsGroupDescribe}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group import dispatch
from ottla.coordinator.group.streams.heartbeat import HeartbeatResult
from ottla.coordinator.group.streams.kind import StreamsGroups
from ottla.coordinator.group.streams.validation import check_request
from ottla.coordinator.runtime.log import error_text, operation_error
from ottla.coordinator.runtime.shard import recover
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.protocol.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.context import RequestContext
    from ottla.coordinator.group.descriptions import Descriptions
    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.runtime import CoordinatorRuntime


def refused(code: ErrorCode, text: str | None = None) -> StreamsGroupHeartbeatResponse:
    """Return the response of a heartbeat that fails."""
    return StreamsGroupHeartbeatResponse(
        error_code=code,
        error_message=text,
        member_id="",
        member_epoch=0,
        heartbeat_interval_ms=0,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )


class StreamsRequests:
    """Requests about the streams groups of all shards."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        partition_for: Callable[[str], int],
        descriptions: Descriptions,
    ) -> None:
        self._runtime = runtime
        self._partition_for = partition_for
        self._descriptions = descriptions

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> Pending[HeartbeatResult]:
        """Join, stay in, change or leave a streams group."""

        def refuse(error: Exception) -> HeartbeatResult:
            code = operation_error(error)
            text = None if code is ErrorCode.UNKNOWN_SERVER_ERROR else error_text(error)
            return HeartbeatResult(refused(code, text), {})

        try:
            check_request(request)
        except KafkaError as error:
            return Pending.of(refuse(error))
        pending = self._runtime.write(
            self._partition_for(request.group_id),
            lambda shard: dispatch.streams_heartbeat(shard.groups, request, context),
        )
        return recover(pending, refuse)

    def describe(
        self, request: StreamsGroupDescribeRequest
    ) -> Pending[StreamsGroupDescribeResponse]:
        """Describe streams groups."""
        described = self._descriptions.describe_kind(request.group_ids, StreamsGroups)
        return described.then(lambda groups: StreamsGroupDescribeResponse(groups=groups))
