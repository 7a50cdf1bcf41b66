"""Access control entries: what may be stored, and what is removed by filters.

Kafka: org.apache.kafka.controller.AclControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.framing import MessageAndVersion
from ottla.protocol.apis.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.apis.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.records.metadata import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from ottla.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.timeline import TimelineDict
from ottla.types import Uuid

if TYPE_CHECKING:
    from random import Random

    from ottla.controller.result import Slices
    from ottla.timeline import SnapshotRegistry

MAX_ACLS: Final = 100_000
"""Most entries in the cluster; each needs memory on every node."""
_ENTRIES_PER_SLICE: Final = 2500
"""Entries compared with a filter in one turn of the loop: about three milliseconds."""
_ID_BYTES: Final = 16


class AclControl:
    """The entries, by id and by content."""

    def __init__(self, registry: SnapshotRegistry, rng: Random) -> None:
        self._by_id: TimelineDict[Uuid, Acl] = TimelineDict(registry)
        self._ids: TimelineDict[Acl, Uuid] = TimelineDict(registry)
        self._rng = rng

    def replay_entry(self, record: AccessControlEntryRecord) -> None:
        """Add an entry."""
        acl = acl_of(record)
        self._by_id[record.id] = acl
        self._ids[acl] = record.id

    def replay_remove(self, record: RemoveAccessControlEntryRecord) -> None:
        """Remove an entry."""
        acl = self._by_id.pop(record.id, None)
        if acl is not None:
            self._ids.pop(acl, None)

    def create(self, request: CreateAclsRequest) -> ControllerResult[CreateAclsResponse]:
        """Store entries; one that exists is no error, and stored once."""
        records: dict[Acl, MessageAndVersion] = {}
        results = []
        for creation in request.creations:
            error: KafkaError | None = None
            try:
                acl = _created(creation)
                if acl not in self._ids and acl not in records:
                    if len(self._by_id) + len(records) >= MAX_ACLS:
                        text = f"the cluster holds {MAX_ACLS} ACLs, the maximum"
                        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
                    records[acl] = MessageAndVersion(self._record(acl), 0)
            except KafkaError as refused:
                error = refused
            results.append(CreateAclsResponse.AclCreationResult(**_error(error)))
        response = CreateAclsResponse(results=results)
        return ControllerResult(list(records.values()), response, is_atomic=True)

    def _record(self, acl: Acl) -> AccessControlEntryRecord:
        return AccessControlEntryRecord(
            id=Uuid.drawn(lambda: self._rng.randbytes(_ID_BYTES)),
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )

    def delete(self, request: DeleteAclsRequest) -> Slices[ControllerResult[DeleteAclsResponse]]:
        """Remove the entries that match each filter; the slices have no records."""
        removed: dict[Uuid, None] = {}
        results = []
        for requested in request.filters:
            result = DeleteAclsResponse.DeleteAclsFilterResult
            try:
                acl_filter = checked_filter(requested)
            except KafkaError as error:
                results.append(result(**_error(error), matching_acls=[]))
                continue
            matches = yield from self._matches(acl_filter)
            removed.update(dict.fromkeys(matches))
            matching = [_matching(acl) for acl in matches.values()]
            results.append(result(error_message=None, matching_acls=matching))
        records = [
            MessageAndVersion(RemoveAccessControlEntryRecord(id=id_), 0)
            for id_ in removed
            if id_ in self._by_id  # a request between two slices may have removed it
        ]
        response = DeleteAclsResponse(filter_results=results)
        return ControllerResult(records, response, is_atomic=True)

    def _matches(self, acl_filter: AclFilter) -> Slices[dict[Uuid, Acl]]:
        if acl_filter.matches_at_most_one:
            content: Any = acl_filter  # tuples of the same fields are equal
            known = self._ids.get(content)
            return {} if known is None else {known: self._by_id[known]}
        entries = list(self._by_id.items())
        matches: dict[Uuid, Acl] = {}
        for first in range(0, len(entries), _ENTRIES_PER_SLICE):
            if first:
                yield []
            some = entries[first : first + _ENTRIES_PER_SLICE]
            matches.update({id_: acl for id_, acl in some if acl_filter.fits(acl)})
        return matches


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """Return a record's content."""
    return Acl(
        record.resource_type,
        record.pattern_type,
        record.resource_name,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def checked_filter(one: Any) -> AclFilter:
    """Return a filter of a request; KafkaError for unknown numbers."""
    unknown = {
        "resource type": one.resource_type_filter not in set(ResourceType) - {0},
        "pattern type": one.pattern_type_filter not in set(PatternType) - {0},
        "operation": one.operation not in set(Operation) - {0},
        "permission type": one.permission_type not in set(Permission) - {0},
    }
    for what, is_unknown in unknown.items():
        if is_unknown:
            raise _invalid(f"Unknown {what} in the filter.")
    return AclFilter(
        one.resource_type_filter,
        one.pattern_type_filter,
        one.resource_name_filter,
        one.principal_filter,
        one.host_filter,
        one.operation,
        one.permission_type,
    )


def _created(one: Any) -> Acl:
    """Return the entry that is to be stored; KafkaError with Kafka's text."""
    if one.resource_type not in set(ResourceType) - {0, 1}:
        raise _invalid(f"Invalid resourceType {_name(ResourceType, one.resource_type)}")
    if one.resource_pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
        raise _invalid(f"Invalid patternType {_name(PatternType, one.resource_pattern_type)}")
    if one.operation not in set(Operation) - {0, 1}:
        raise _invalid(f"Invalid operation {_name(Operation, one.operation)}")
    if one.permission_type not in {Permission.ALLOW, Permission.DENY}:
        raise _invalid(f"Invalid permissionType {_name(Permission, one.permission_type)}")
    if not one.resource_name:
        raise _invalid("Resource name should not be empty")
    if one.resource_type == ResourceType.CLUSTER and one.resource_name != CLUSTER_NAME:
        raise _invalid("The only valid name for the CLUSTER resource is kafka-cluster")
    kind, separator, _ = one.principal.partition(":")
    if not separator or not kind:
        raise _invalid(f"Could not parse principal from `{one.principal}` (no colon is present)")
    return Acl(
        one.resource_type,
        one.resource_pattern_type,
        one.resource_name,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )


def _name(kind: type[Any], number: int) -> str:
    try:
        return str(kind(number).name)
    except ValueError:
        return "UNKNOWN"


def _matching(acl: Acl) -> Any:
    return DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _error(error: KafkaError | None) -> dict[str, Any]:
    if error is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": int(error.code), "error_message": error.message}


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
