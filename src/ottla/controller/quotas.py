"""Quotas of users, client ids and addresses.

Kafka: org.apache.kafka.controller.ClientQuotaControlManager.
"""

from __future__ import annotations

import math
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.image.configs import entity_of
from ottla.metadata.resources import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    ENTITY_TYPES,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
)
from ottla.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from ottla.protocol.records.metadata import ClientQuotaRecord
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.timeline import SnapshotRegistry

_CLIENT_KEYS: Final = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE}
)
_IP_KEYS: Final = frozenset({CONNECTION_CREATION_RATE})
_WHOLE_MAX: Final = {
    PRODUCER_BYTE_RATE: (2.0**63, "a LONG"),
    CONSUMER_BYTE_RATE: (2.0**63, "a LONG"),
    CONNECTION_CREATION_RATE: (2.0**31 - 1, "an INT"),
}
MAX_LIMITS = 100_000
"""Most limits in the cluster; each needs memory on every node."""
_FRACTION = 1e-6
"""A fraction up to this is ignored, as in Kafka."""


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
        """Change limits; each entity succeeds or fails as a whole.

        The first changes of a repeated entity apply although it gets an error, as in Kafka.
        """
        records: list[MessageAndVersion] = []
        errors: dict[QuotaEntity, KafkaError | None] = {}
        for entry in request.entries:
            names = {part.entity_type: part.entity_name for part in entry.entity}
            entity = tuple(sorted(names.items(), key=lambda part: part[0]))
            keys = [op.key for op in entry.ops]
            try:
                if entity in errors or len(set(keys)) != len(keys):
                    raise _refused(f"Ignoring duplicate entity {_shown(names)}")
                limits = {op.key: None if op.remove else op.value for op in entry.ops}
                records += self._alter_entity(entity, limits, len(records))
                errors[entity] = None
            except KafkaError as problem:
                errors[entity] = problem
        response = AlterClientQuotasResponse(
            entries=[_result(entity, error) for entity, error in errors.items()]
        )
        return ControllerResult([] if request.validate_only else records, response)

    def _alter_entity(
        self, entity: QuotaEntity, limits: Mapping[str, float | None], already: int
    ) -> list[MessageAndVersion]:
        allowed = _allowed_keys(dict(entity))
        records = []
        for key, limit in limits.items():
            current = self._limits.get((entity, key))
            if limit is not None:
                _check_limit(allowed, key, limit)
            if current is None and limit is not None:
                already += 1
                if len(self._limits) + already > MAX_LIMITS:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, f"More than {MAX_LIMITS} quotas.")
            if current != limit:
                records.append(MessageAndVersion(_record(entity, key, limit), 0))
        return records


def _result(entity: QuotaEntity, error: KafkaError | None) -> AlterClientQuotasResponse.EntryData:
    struct = AlterClientQuotasResponse.EntryData
    return struct(
        error_code=int(error.code) if error else 0,
        error_message=error.message if error else None,
        entity=[struct.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )


def _shown(names: Mapping[str, str | None]) -> str:
    known = [kind for kind in (CLIENT_ID, IP, USER) if kind in names]
    parts = ", ".join(
        f"{kind}={'null' if names[kind] is None else names[kind]}"
        for kind in (*known, *(kind for kind in names if kind not in known))
    )
    return f"ClientQuotaEntity(entries={{{parts}}})"


def _record(entity: QuotaEntity, key: str, limit: float | None) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[
            ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
            for kind, name in entity
        ],
        key=key,
        value=0.0 if limit is None else limit,
        remove=limit is None,
    )


def _allowed_keys(names: Mapping[str, str | None]) -> frozenset[str]:
    if not names:
        raise _refused("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in ENTITY_TYPES:
            raise _refused(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _refused(f"Empty {kind} not supported")
    if IP not in names:
        return _CLIENT_KEYS
    if len(names) > 1:
        raise _refused(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    if not _is_address(names[IP]):
        raise _refused(f"{names[IP]} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _is_address(name: str | None) -> bool:
    """Whether it is an address or the default; unlike Kafka, host names are not resolved."""
    if name is None:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _check_limit(allowed: frozenset[str], key: str, limit: float) -> None:
    if key not in allowed:
        raise _refused(f"Invalid configuration key {key}")
    if not limit > 0:  # NaN too, which Kafka accepts and then never throttles
        raise _refused(f"Quota {key} must be greater than 0")
    if key in _WHOLE_MAX:
        largest, kind = _WHOLE_MAX[key]
        if limit > largest:
            raise _refused(f"Proposed value for {key} is too large for {kind}.")
        if math.fmod(limit, 1) > _FRACTION:
            raise _refused(f"{key} cannot be a fractional value.")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
