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
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.requests.api import codec_form, handles
from ottla.server.requests.refusals import refused
from ottla.server.requests.rights import Denied, Right

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


def _may_describe(ctx: Context, _request: DescribeClientQuotasRequest) -> Denied | None:
    """DESCRIBE_CONFIGS on the cluster; the refusal has no text and no list, as in Kafka."""
    if ctx.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return Denied(DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None))


@handles(DescribeClientQuotasRequest, right=_may_describe)
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


def _refused(
    request: AlterClientQuotasRequest, error: KafkaError, version: int
) -> AlterClientQuotasResponse:
    """Refuse each entry with the text of the code, as Kafka does."""
    response: AlterClientQuotasResponse = refused(request, KafkaError(error.code), version)
    return response


@handles(
    AlterClientQuotasRequest,
    right=Right(Operation.ALTER_CONFIGS),
    forwarded=True,
    form=codec_form(AlterClientQuotasRequest, fail=_refused),
)
def alter_client_quotas(
    ctx: Context, request: AlterClientQuotasRequest
) -> Pending[AlterClientQuotasResponse]:
    """Set and remove quotas; answered for each entry when that is committed."""
    return ctx.controller.send(request, ctx.requester())
