"""Registration, heartbeats and other requests of nodes to the controller.

Kafka: ControllerApis.handleBrokerRegistration, handleBrokerHeartBeatRequest and others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.protocol.apis.controller_registration import ControllerRegistrationRequest
from ottla.security.acl import Operation
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Right

if TYPE_CHECKING:
    from ottla.protocol.schema import Request
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


@handles(BrokerHeartbeatRequest, right=Right(Operation.CLUSTER_ACTION))
def heartbeat(ctx: Context, request: BrokerHeartbeatRequest) -> Pending[Any]:
    """Let the active controller decide; the connection is watched for the end of the process."""
    ctx.broker.failure_detection.heard(ctx.connection, request.broker_id)
    return ctx.controller.send(request)


@handles(BrokerRegistrationRequest, right=Right(Operation.CLUSTER_ACTION))
@handles(ControllerRegistrationRequest, right=Right(Operation.CLUSTER_ACTION))
@handles(AllocateProducerIdsRequest, right=Right(Operation.CLUSTER_ACTION))
def decide(ctx: Context, request: Request) -> Pending[Any]:
    """Let the active controller decide; NOT_CONTROLLER elsewhere."""
    return ctx.controller.send(request)
