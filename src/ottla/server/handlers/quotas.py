"""The APIs of client quotas, and the selection of stored quotas by a filter (KIP-546).

Kafka: KafkaApis.handleDescribeClientQuotasRequest, ControllerApis.handleAlterClientQuotas;
org.apache.kafka.image.ClientQuotasImage.describe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ENTITY_TYPES, IP
from ottla.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from ottla.protocol.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.requests.api import codec_form, handles
from ottla.server.requests.refusals import refused
from ottla.server.requests.rights import Denied, Right

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.metadata.resources import QuotaEntity
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

    Component = DescribeClientQuotasRequest.ComponentData


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


Entry = DescribeClientQuotasResponse.EntryData
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


class _AnyName:
    """Matches every entity name, the default included."""


_ANY_NAME: Final = _AnyName()


def describe_quotas(
    by_entity: Mapping[QuotaEntity, Mapping[str, float]], request: DescribeClientQuotasRequest
) -> list[Entry]:
    """Return the entries that match; KafkaError INVALID_REQUEST or UNSUPPORTED_VERSION."""
    requested: dict[str, str | _AnyName | None] = {}
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in requested:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        requested[kind] = _requested_name(component)
    if IP in requested and len(requested) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return [
        _entry(entity, limits)
        for entity, limits in by_entity.items()
        if _matches(dict(entity), requested, strict=request.strict)
    ]


def _requested_name(component: Component) -> str | _AnyName | None:
    if component.match_type == EXACT:
        if component.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        return component.match
    if component.match_type not in (DEFAULT, SPECIFIED):
        raise _invalid(f"Unknown match type {component.match_type}")
    is_default = component.match_type == DEFAULT
    if component.match is not None:
        name = "DEFAULT" if is_default else "SPECIFIED"
        raise _invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
    return None if is_default else _ANY_NAME


def _matches(
    entity: Mapping[str, str | None],
    requested: Mapping[str, str | _AnyName | None],
    *,
    strict: bool,
) -> bool:
    if strict and len(entity) != len(requested):
        return False
    return all(
        kind in entity and (name is _ANY_NAME or entity[kind] == name)
        for kind, name in requested.items()
    )


def _entry(entity: QuotaEntity, limits: Mapping[str, float]) -> Entry:
    return Entry(
        entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[Entry.ValueData(key=key, value=value) for key, value in limits.items()],
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
