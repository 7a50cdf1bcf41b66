"""Access control entries: resources, operations, permissions and filters.

Kafka: org.apache.kafka.common.acl, org.apache.kafka.common.resource.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"


class ResourceType(IntEnum):
    """Kinds of resources, with their numbers on the wire."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a resource's name is compared; ANY and MATCH exist in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Operations on resources, with their numbers on the wire."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_CONFIGS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        *_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DESCRIBE, Operation.DELETE, *_CONFIGS),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        *_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.DESCRIBE,
        Operation.WRITE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations of each kind of resource."""


class Acl(NamedTuple):
    """One entry."""

    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """A filter of entries; None and ANY match everything."""

    resource_type: int
    pattern_type: int
    resource_name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def matches_at_most_one(self) -> bool:
        """Whether it can match one entry only: None, ANY and MATCH stand for several values."""
        return (
            None not in self
            and self.resource_type != ResourceType.ANY
            and self.pattern_type not in {PatternType.ANY, PatternType.MATCH}
            and self.operation != Operation.ANY
            and self.permission != Permission.ANY
        )

    def fits(self, acl: Acl) -> bool:
        """Whether the filter matches an entry."""
        return (
            self.resource_type in {ResourceType.ANY, acl.resource_type}
            and self._fits_name(acl)
            and self.principal in {None, acl.principal}
            and self.host in {None, acl.host}
            and self.operation in {Operation.ANY, acl.operation}
            and self.permission in {Permission.ANY, acl.permission}
        )

    def _fits_name(self, acl: Acl) -> bool:
        kind, name = self.pattern_type, self.resource_name
        if kind not in {PatternType.ANY, PatternType.MATCH, acl.pattern_type}:
            return False
        if name is None or name == acl.resource_name:
            return True
        if kind != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return name.startswith(acl.resource_name)
