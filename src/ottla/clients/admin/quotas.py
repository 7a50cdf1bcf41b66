"""Admin calls for quotas of users, client ids and IP addresses.

Kafka: org.apache.kafka.common.quota.{ClientQuotaEntity, ClientQuotaFilter, ClientQuotaAlteration}.

An entity maps "user", "client-id" or "ip" to a name; None is the default entity.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.clients.admin.calls import AdminCalls, error_of
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.apis.describe_client_quotas import DescribeClientQuotasRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.errors import KafkaError

Entity = frozenset[tuple[str, str | None]]
"""The parts of an entity: the key of a result."""


class AnyName(Enum):
    """A filter that matches every name of an entity type, including the default."""

    ANY_NAME = "any"


ANY_NAME: Final = AnyName.ANY_NAME
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


class QuotaChange(NamedTuple):
    """New limits of one entity; a limit of None removes the key."""

    entity: Mapping[str, str | None]
    limits: Mapping[str, float | None]


class QuotasAdmin(AdminCalls):
    """The part of the admin for quotas."""

    async def describe_client_quotas(
        self,
        entity_filter: Mapping[str, str | AnyName | None] | None = None,
        *,
        strict: bool = False,
        timeout: float | None = None,
    ) -> dict[Entity, dict[str, float]]:
        """Return the limits of matching entities, or of all without a filter.

        Parameters:
            entity_filter: names by entity type; None for the default, ANY_NAME for all.
            strict: whether entities with further types do not match.
        """
        request = DescribeClientQuotasRequest(
            components=[_component(kind, name) for kind, name in (entity_filter or {}).items()],
            strict=strict,
        )
        answer = await self._call(request, timeout=timeout)
        return {
            _entity(entry): {value.key: value.value for value in entry.values}
            for entry in answer.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Iterable[QuotaChange],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[Entity, KafkaError | None]:
        """Set and remove limits (KIP-546); returns an outcome for each entity.

        Parameters:
            changes: limits by key, in bytes or requests a second or in percent; None removes one.
            validate_only: whether the changes are only checked.
        """
        request = AlterClientQuotasRequest(
            entries=[_entry(QuotaChange(*change)) for change in changes],
            validate_only=validate_only,
        )
        answer = await self._call(request, timeout=timeout)
        return {_entity(entry): error_of(entry) for entry in answer.entries}


def _entity(entry: Any) -> Entity:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _component(kind: str, name: str | AnyName | None) -> DescribeClientQuotasRequest.ComponentData:
    if isinstance(name, AnyName):
        match_type, match = _SPECIFIED, None
    else:
        match_type, match = (_DEFAULT if name is None else _EXACT), name
    return DescribeClientQuotasRequest.ComponentData(
        entity_type=kind, match_type=match_type, match=match
    )


def _entry(change: QuotaChange) -> AlterClientQuotasRequest.EntryData:
    struct = AlterClientQuotasRequest.EntryData
    return struct(
        entity=[
            struct.EntityData(entity_type=kind, entity_name=name)
            for kind, name in change.entity.items()
        ],
        ops=[
            struct.OpData(key=key, value=0.0 if limit is None else limit, remove=limit is None)
            for key, limit in change.limits.items()
        ],
    )
