"""DescribeClientQuotas and AlterClientQuotas (KIP-546).

Kafka: KafkaApis.handleDescribeClientQuotasRequest, ControllerApis.handleAlterClientQuotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from ottla.protocol.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.quota.description import describe_quotas
from ottla.server.handlers.refusals import per_item_errors
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


@handles(DescribeClientQuotasRequest)
def describe_client_quotas(
    ctx: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """List the quotas that match the filter, as committed."""
    try:
        entries = describe_quotas(ctx.broker.image.quotas.by_entity, request)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=int(error.code), error_message=error.message, entries=None
        )
    return DescribeClientQuotasResponse(error_message="", entries=entries)


@handles(AlterClientQuotasRequest)
def alter_client_quotas(
    ctx: Context, request: AlterClientQuotasRequest
) -> Pending[AlterClientQuotasResponse]:
    """Set and remove quotas; answered for each entry when that is committed."""
    response = AlterClientQuotasResponse
    return per_item_errors(
        ctx.controller.send(request, ctx.requester()),
        lambda error: response(
            entries=[
                response.EntryData(
                    error_code=error["error_code"],
                    error_message=ErrorCode(error["error_code"]).text,  # as in Kafka
                    entity=[
                        response.EntryData.EntityData(
                            entity_type=one.entity_type, entity_name=one.entity_name
                        )
                        for one in entry.entity
                    ],
                )
                for entry in request.entries
            ]
        ),
    )
