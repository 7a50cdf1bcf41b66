"""Applies the controller mutation quota to requests that create and delete partitions.

Kafka: ControllerApis with ControllerMutationQuotaManager.newQuotaFor (KIP-599).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ottla.protocol.apis.create_partitions import CreatePartitionsResponse
    from ottla.protocol.apis.create_topics import CreateTopicsResponse
    from ottla.protocol.apis.delete_topics import DeleteTopicsResponse
    from ottla.purgatory.pending import Pending
    from ottla.quota.mutations import MutationPermits
    from ottla.server.requests.context import Context

Response = TypeVar(
    "Response", "CreateTopicsResponse", "DeleteTopicsResponse", "CreatePartitionsResponse"
)


def mutation_permits(ctx: Context, *, strict_from: int) -> MutationPermits:
    """Return the permits of a request; versions below strict_from are throttled, not refused."""
    broker = ctx.broker
    return broker.quotas.mutations.permits_for(
        ctx.user,
        ctx.client_id,
        broker.clock.monotonic_ms(),
        is_strict=ctx.api_version >= strict_from,
    )


def with_throttle_time(
    ctx: Context, permits: MutationPermits, answer: Pending[Response]
) -> Pending[Response]:
    """Set the throttle time of the response."""

    def set_throttle_time(response: Response) -> Response:
        response.throttle_time_ms = permits.throttle_time_ms(ctx.broker.clock.monotonic_ms())
        return response

    return answer.then(set_throttle_time)
