"""Access control entries, SCRAM credentials and delegation tokens, kept as their records.

Kafka: org.apache.kafka.image.{AclsImage, ScramImage, DelegationTokenImage}.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage
from ottla.metadata.framing import MessageAndVersion
from ottla.security.sasl.scram import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.delta import MetadataDelta
    from ottla.protocol.records.metadata import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        RemoveAccessControlEntryRecord,
        RemoveDelegationTokenRecord,
        RemoveUserScramCredentialRecord,
        UserScramCredentialRecord,
    )
    from ottla.security.sasl.scram import ScramShape
    from ottla.types import Uuid


class AclsImage:
    """Entries by id."""

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[Uuid, AccessControlEntryRecord] = {}

    def replay_entry(self, record: AccessControlEntryRecord, delta: MetadataDelta) -> None:
        """Add an entry."""
        self.by_id[record.id] = record
        delta.acls_changed[record.id] = None

    def replay_remove(self, record: RemoveAccessControlEntryRecord, delta: MetadataDelta) -> None:
        """Remove an entry."""
        if self.by_id.pop(record.id, None) is None:
            raise CorruptMessage(f"Failed to find existing ACL with ID {record.id} in either image")
        delta.acls_changed[record.id] = None

    def records(self) -> Iterator[MessageAndVersion]:
        """Return the records of the current state; later changes do not affect them."""
        return (MessageAndVersion(record, 0) for record in list(self.by_id.values()))


class ScramImage:
    """Credentials by (user, mechanism)."""

    __slots__ = ("by_user", "shapes")

    def __init__(self) -> None:
        self.by_user: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.shapes: dict[int, Counter[ScramShape]] = {}
        """By mechanism: how many credentials have each shape."""

    def replay_credential(self, record: UserScramCredentialRecord, delta: MetadataDelta) -> None:
        """Add or replace a credential."""
        self._uncount(self.by_user.get((record.name, record.mechanism)))
        self.by_user[record.name, record.mechanism] = record
        shape = shape_of(record.salt, record.iterations)
        self.shapes.setdefault(record.mechanism, Counter())[shape] += 1
        delta.scram_changed[record.name, record.mechanism] = None

    def replay_remove(self, record: RemoveUserScramCredentialRecord, delta: MetadataDelta) -> None:
        """Remove a credential."""
        self._uncount(self.by_user.pop((record.name, record.mechanism), None))
        delta.scram_changed[record.name, record.mechanism] = None

    def records(self) -> Iterator[MessageAndVersion]:
        """Return the records of the current state; later changes do not affect them."""
        return (MessageAndVersion(record, 0) for record in list(self.by_user.values()))

    def _uncount(self, replaced: UserScramCredentialRecord | None) -> None:
        if replaced is not None:
            shapes = self.shapes[replaced.mechanism]
            shapes[shape_of(replaced.salt, replaced.iterations)] -= 1
            self.shapes[replaced.mechanism] = +shapes


class DelegationTokensImage:
    """Tokens by id."""

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[str, DelegationTokenRecord] = {}

    def replay_token(self, record: DelegationTokenRecord, delta: MetadataDelta) -> None:
        """Add or replace a token."""
        self.by_id[record.token_id] = record
        delta.delegation_tokens_changed[record.token_id] = None

    def replay_remove(self, record: RemoveDelegationTokenRecord, delta: MetadataDelta) -> None:
        """Remove a token."""
        self.by_id.pop(record.token_id, None)
        delta.delegation_tokens_changed[record.token_id] = None

    def records(self) -> Iterator[MessageAndVersion]:
        """Return the records of the current state; later changes do not affect them."""
        return (MessageAndVersion(record, 0) for record in list(self.by_id.values()))
