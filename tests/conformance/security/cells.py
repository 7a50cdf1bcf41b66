"""The cells of the authorization matrix: an API's request, the rights it needs, and who asks.

Each row is asked by seven users: without a right, with all of them, with all and a DENY of the last
one, by prefixes, by wildcards, from another host, and as a super user. A row with several rights is
also asked by users that have only the first ones.

Kafka: the checks in kafka.server.KafkaApis, org.apache.kafka.server.ControllerApis.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import UnsupportedVersion
from ottla.protocol.api_keys import ApiKey, advertised_versions, request_class
from ottla.protocol.frames import encode_request
from ottla.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.types import ZERO_UUID
from tests.conformance.differential.case import build
from tests.conformance.differential.side import batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request
    from ottla.types import Uuid

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
NAMES: Final = {
    TOPIC: "m-topic",
    GROUP: "m-group",
    CLUSTER: CLUSTER_NAME,
    TRANSACTION: "m-transaction",
}
KINDS: Final = ("none", "allow", "deny", "prefix", "wildcard", "host", "super")
OTHER_HOST: Final = "192.0.2.1"
Rights = tuple[tuple[ResourceType, Operation], ...]


class Row(NamedTuple):
    """A request and the rights that it needs, in the order in which they are tested."""

    name: str
    key: ApiKey
    fields: dict[str, Any]
    rights: Rights
    version: int | None

    @property
    def listeners(self) -> tuple[str, ...]:
        """Where it is asked: of the broker, of the controller."""
        return request_class(self.key).api_listeners

    @property
    def versions(self) -> tuple[int, ...]:
        """The version of the row; else the lowest and the highest that can say it."""
        if self.version is not None:
            return (self.version,)
        highest = advertised_versions(self.key).highest
        lowest = request_class(self.key).versions.lowest
        able = [version for version in range(lowest, highest + 1) if self._can_be_said(version)]
        return tuple(dict.fromkeys((able[0], highest)))

    def _can_be_said(self, version: int) -> bool:
        try:
            encode_request(self.request(ZERO_UUID, version), version, 0, "")
        except (ValueError, UnsupportedVersion):
            return False
        return True

    def request(self, topic_id: Uuid, version: int) -> Request:
        """Return the request; each has its own fields, for a node may change them."""
        made: Request = build(request_class(self.key), version, _filled(self.fields, topic_id))
        return made


class Cell(NamedTuple):
    """A row asked by a user of its own."""

    row: Row
    kind: str
    user: str
    acls: tuple[Acl, ...]


def _filled(value: Any, topic_id: Uuid) -> Any:
    stands_for = {"$topic-id": topic_id, "$no-id": ZERO_UUID, "$batch": batch()}
    if isinstance(value, str):
        return stands_for.get(value, value)
    if isinstance(value, dict):
        return {name: _filled(one, topic_id) for name, one in value.items()}
    return [_filled(one, topic_id) for one in value] if isinstance(value, list) else value


def rows() -> Iterator[Row]:
    """Read `matrix.txt`: what a client may send."""
    text = (Path(__file__).parent / "matrix.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    for head, fields in zip(lines[::2], lines[1::2], strict=True):
        name, version, rights = head.split(" | ")
        listed = [] if rights == "-" else [one.split(" ") for one in rights.split(", ")]
        needed = tuple(
            (ResourceType[resource], Operation[operation]) for resource, operation in listed
        )
        key = ApiKey[name.partition(" ")[0]]
        yield Row(name, key, json.loads(fields), needed, None if version == "-" else int(version))


ROWS: Final = tuple(rows())


def cells() -> Iterator[Cell]:
    """Yield every cell."""
    for number, row in enumerate(ROWS):
        for kind in KINDS:
            yield _cell(number, row, kind, row.rights)
        for count in range(1, len(row.rights)):
            yield _cell(number, row, f"first{count}", row.rights[:count])


def _cell(number: int, row: Row, kind: str, rights: Rights) -> Cell:
    user = f"m{number}-{kind}"
    acls = [_acl(user, kind, *right) for right in rights] if kind not in {"none", "super"} else []
    if kind == "deny" and acls:
        acls.append(acls[-1]._replace(permission=Permission.DENY))
    return Cell(row, kind, user, tuple(acls))


def _acl(user: str, kind: str, resource: ResourceType, operation: Operation) -> Acl:
    pattern = PatternType.PREFIXED if kind == "prefix" else PatternType.LITERAL
    name = NAMES.get(resource, "User:alice")
    if resource is CLUSTER:
        pass  # no other name is allowed
    elif kind == "prefix":
        name = name[:-1]
    elif kind == "wildcard":
        name = WILDCARD
    host = OTHER_HOST if kind == "host" else WILDCARD
    return Acl(resource, pattern, name, f"User:{user}", host, operation, Permission.ALLOW)
