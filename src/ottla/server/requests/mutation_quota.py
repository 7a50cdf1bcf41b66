"""Charges requests that change partitions to their clients' quotas.

Kafka: ControllerApis with ControllerMutationQuotaManager.newQuotaFor (KIP-599).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ottla.protocol.apis.create_partitions import CreatePartitionsResponse
    from ottla.protocol.apis.create_topics import CreateTopicsResponse
    from ottla.protocol.apis.delete_topics import DeleteTopicsResponse
    from ottla.purgatory.pending import Pending
    from ottla.quota.mutations import MutationCharge
    from ottla.server.requests.context import Context

Response = TypeVar(
    "Response", "CreateTopicsResponse", "DeleteTopicsResponse", "CreatePartitionsResponse"
)


def mutation_charge(ctx: Context, *, strict_from: int) -> MutationCharge:
    """Begin to charge a request; clients of versions before strict_from know no refusal."""
    broker = ctx.broker
    return broker.quotas.mutations.charge(
        ctx.user,
        ctx.client_id,
        broker.clock.monotonic_ms(),
        is_strict=ctx.api_version >= strict_from,
    )


def tell_pause(
    ctx: Context, charge: MutationCharge, answer: Pending[Response]
) -> Pending[Response]:
    """Write into the answer for how long the client has to wait."""

    def tell(response: Response) -> Response:
        response.throttle_time_ms = charge.pause_ms(ctx.broker.clock.monotonic_ms())
        return response

    return answer.then(tell)
