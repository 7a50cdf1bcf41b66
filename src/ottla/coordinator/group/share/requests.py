"""The APIs of share groups about members: ShareGroupHeartbeat, ShareGroupDescribe.

Kafka: GroupCoordinatorService.{shareGroupHeartbeat, shareGroupDescribe, persisterInitialize};
org.apache.kafka.server.share.persister.Persister.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from ottla.coordinator.group import dispatch
from ottla.coordinator.group.share import initialization
from ottla.coordinator.group.share.heartbeat import check_request
from ottla.coordinator.group.share.kind import ShareGroups
from ottla.coordinator.runtime.log import error_text, operation_error
from ottla.coordinator.runtime.shard import Result, recover
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.protocol.apis.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.protocol.apis.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.context import RequestContext
    from ottla.coordinator.group.descriptions import Descriptions
    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.group.share.heartbeat import Heartbeat
    from ottla.coordinator.group.share.initialization import Initialization
    from ottla.coordinator.runtime import CoordinatorRuntime
    from ottla.protocol.apis.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from ottla.protocol.apis.initialize_share_group_state import InitializeShareGroupStateResponse
    from ottla.protocol.apis.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    )


class SharePersister(Protocol):
    """Sends each share partition of a request to its coordinator, and retries for a time.

    The responses have a result for each share partition; no method fails as a whole.
    """

    def initialize(
        self, request: InitializeShareGroupStateRequest
    ) -> Pending[InitializeShareGroupStateResponse]:
        """Begin the states of share partitions."""

    def delete(
        self, request: DeleteShareGroupStateRequest
    ) -> Pending[DeleteShareGroupStateResponse]:
        """Forget the states of share partitions."""

    def read_summary(
        self, request: ReadShareGroupStateSummaryRequest
    ) -> Pending[ReadShareGroupStateSummaryResponse]:
        """Return start offsets and counts of completed deliveries."""


log = logging.getLogger("ottla.groups")
_Topic: Final = InitializeShareGroupStateRequest.InitializeStateData


class ShareGroupRequests:
    """One method per API, request in, pending response out."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        partition_for: Callable[[str], int],
        persister: SharePersister,
        descriptions: Descriptions,
    ) -> None:
        self._runtime = runtime
        self._partition_for = partition_for
        self._persister = persister
        self._descriptions = descriptions

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, context: RequestContext
    ) -> Pending[ShareGroupHeartbeatResponse]:
        """Join, stay in, change or leave a share group."""

        def refuse(error: Exception) -> ShareGroupHeartbeatResponse:
            return ShareGroupHeartbeatResponse(
                error_code=operation_error(error),
                error_message=error_text(error),
                member_epoch=0,
                heartbeat_interval_ms=0,
            )

        def answered(done: Heartbeat) -> ShareGroupHeartbeatResponse:
            if done.initialization is not None:
                self.initialize(done.initialization)
            return done.response

        try:
            check_request(request)
        except KafkaError as error:
            return Pending.of(refuse(error))
        pending = self._runtime.write(
            self._partition_for(request.group_id),
            lambda shard: dispatch.share_heartbeat(shard.groups, request, context),
        )
        return recover(pending.then(answered), refuse)

    def describe(
        self, request: ShareGroupDescribeRequest, _context: RequestContext
    ) -> Pending[ShareGroupDescribeResponse]:
        """Describe share groups."""
        described = self._descriptions.describe_kind(request.group_ids, ShareGroups)
        return described.then(lambda groups: ShareGroupDescribeResponse(groups=groups))

    def initialize(self, begun: Initialization) -> Pending[InitializeShareGroupStateResponse]:
        """Have the share coordinators initialise states, and write which are initialised."""
        request = InitializeShareGroupStateRequest(
            group_id=begun.group_id,
            topics=[
                _Topic(
                    topic_id=topic_id,
                    partitions=[
                        _Topic.PartitionData(
                            partition=index, state_epoch=begun.state_epoch, start_offset=offset
                        )
                        for index, offset in offsets.items()
                    ],
                )
                for topic_id, offsets in begun.offsets.items()
            ],
        )
        states = self._persister.initialize(request)
        states.on_done(lambda done: self._initialized(begun, done.value))
        return states

    def _initialized(
        self, begun: Initialization, response: InitializeShareGroupStateResponse
    ) -> None:
        failed = ErrorCode.NONE
        for topic in response.results:
            for partition in topic.partitions:
                failed = ErrorCode(partition.error_code) or failed
        change = initialization.give_up if failed else initialization.complete
        if failed:
            log.warning(
                "the share partitions of group %s are not initialised: %s; a heartbeat retries",
                begun.group_id,
                failed.name,
                extra={"event": "share.not_initialized"},
            )
        self._runtime.write(
            self._partition_for(begun.group_id),
            lambda shard: Result(None, change(shard.share, begun)),
        )
