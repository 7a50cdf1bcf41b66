"""Limits of users, client ids and addresses.

Kafka: org.apache.kafka.controller.ClientQuotaControlManager.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.image.quotas import QuotaEntity, entity_of
from ottla.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from ottla.protocol.records.metadata import ClientQuotaRecord
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.timeline import SnapshotRegistry

_USER: Final = "user"
_CLIENT_ID: Final = "client-id"
_IP: Final = "ip"
_CLIENT_KEYS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
_IP_KEYS: Final = frozenset({"connection_creation_rate"})
_WHOLE_KEYS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"}
)
_HOST: Final = re.compile(r"[0-9A-Za-z._-]+|[0-9A-Fa-f:.]+(%\w+)?")
_MAX: Final = {"connection_creation_rate": (1 << 31) - 1}


class QuotaControl:
    """Limits by entity; a limit is replaced, never changed in place."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._limits: TimelineDict[tuple[QuotaEntity, str], float] = TimelineDict(registry)

    def replay_client_quota(self, record: ClientQuotaRecord) -> None:
        """Set or remove one limit."""
        key = entity_of(record), record.key
        if record.remove:
            self._limits.pop(key, None)
        else:
            self._limits[key] = record.value

    def alter(
        self, request: AlterClientQuotasRequest
    ) -> ControllerResult[AlterClientQuotasResponse]:
        """Change limits; each entry succeeds or fails on its own."""
        records: list[MessageAndVersion] = []
        results = []
        for entry in request.entries:
            error: KafkaError | None = None
            try:
                records += self._alter_entry(entry)
            except KafkaError as problem:
                error = problem
            results.append(
                AlterClientQuotasResponse.EntryData(
                    error_code=error.code if error else 0,
                    error_message=error.message if error else None,
                    entity=[
                        AlterClientQuotasResponse.EntryData.EntityData(
                            entity_type=part.entity_type, entity_name=part.entity_name
                        )
                        for part in entry.entity
                    ],
                )
            )
        response = AlterClientQuotasResponse(entries=results)
        return ControllerResult([] if request.validate_only else records, response)

    def _alter_entry(self, entry: AlterClientQuotasRequest.EntryData) -> list[MessageAndVersion]:
        pairs = [(part.entity_type, part.entity_name) for part in entry.entity]
        keys = _check_entity(pairs)
        entity: QuotaEntity = tuple(sorted(pairs, key=lambda pair: pair[0]))
        seen: set[str] = set()
        records = []
        for op in entry.ops:
            if op.key in seen:
                raise _refused(f"Duplicate key {op.key} in one entry.")
            seen.add(op.key)
            if op.key not in keys:
                raise _refused(f"Invalid configuration key {op.key}")
            current = self._limits.get((entity, op.key))
            if op.remove:
                if current is None:
                    continue
            else:
                _check_value(op.key, op.value)
                if current == op.value:
                    continue
            records.append(MessageAndVersion(_record(entity, op.key, op.value, op.remove), 0))
        return records


def _record(entity: QuotaEntity, key: str, value: float, remove: bool) -> ClientQuotaRecord:  # noqa: FBT001 - a record's fields in order
    return ClientQuotaRecord(
        entity=[
            ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
            for kind, name in entity
        ],
        key=key,
        value=0.0 if remove else value,
        remove=remove,
    )


def _check_entity(pairs: Sequence[tuple[str, str | None]]) -> frozenset[str]:
    """Return the keys that such an entity may have."""
    if not pairs:
        raise _refused("Invalid empty client quota entity")
    kinds = [kind for kind, _ in pairs]
    for kind, name in pairs:
        if kind not in (_USER, _CLIENT_ID, _IP):
            raise _refused(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _refused(f"Empty {kind} not supported")
    if len(set(kinds)) != len(kinds):
        raise _refused(f"Entity type {kinds[0]} appears more than once")
    if _IP in kinds:
        if len(kinds) > 1:
            raise _refused(
                "Invalid quota entity combination, IP entity shouldnot be combined with User or "
                "ClientId"
            )
        host = pairs[0][1]
        if host is not None and not _HOST.fullmatch(host):
            raise _refused(f"{host} is not a valid IP or resolvable host.")
        return _IP_KEYS
    return _CLIENT_KEYS


def _check_value(key: str, value: float) -> None:
    if not value > 0:
        raise _refused(f"Quota {key} must be greater than 0")
    if key in _WHOLE_KEYS and abs(value - round(value)) > 1e-6:
        raise _refused(f"{key} cannot be a fractional value.")
    if value > _MAX.get(key, 2**63 - 1):
        raise _refused(f"Proposed value for {key} is too large: {value}")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
