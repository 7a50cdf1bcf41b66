"""SCRAM credentials of users; the controller derives the stored keys and keeps no password.

Kafka: org.apache.kafka.controller.ScramControlManager (KIP-900).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.scram_credential import (
    HASHES,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    credential_record,
)
from ottla.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.protocol.records.metadata import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.controller.features import FeatureControl
    from ottla.timeline import SnapshotRegistry

_SCRAM_FROM: Final = 11
"""The level of metadata.version from which there are such records."""
MAX_CREDENTIALS: Final = 100_000
"""Most credentials in the cluster; each needs memory on every node."""
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


class ScramControl:
    """Which user has a credential of which mechanism."""

    def __init__(self, registry: SnapshotRegistry, features: FeatureControl) -> None:
        self._known: TimelineDict[tuple[str, int], bool] = TimelineDict(registry)
        self._features = features

    def replay_credential(self, record: UserScramCredentialRecord) -> None:
        """Add a credential."""
        self._known[record.name, record.mechanism] = True

    def replay_remove(self, record: RemoveUserScramCredentialRecord) -> None:
        """Remove a credential."""
        self._known.pop((record.name, record.mechanism), None)

    def alter(
        self, request: AlterUserScramCredentialsRequest
    ) -> ControllerResult[AlterUserScramCredentialsResponse]:
        """Set and remove credentials: at most one change of each user."""
        changes: dict[str, MessageAndVersion] = {}
        errors: dict[str, KafkaError] = {}
        requested: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
        for change in requested:
            name = change.name
            if name in errors:
                continue
            try:
                if changes.pop(name, None) is not None:
                    raise KafkaError(
                        ErrorCode.DUPLICATE_RESOURCE,
                        "A user credential cannot be altered twice in the same request",
                    )
                changes[name] = MessageAndVersion(self._record(change), 0)
            except KafkaError as error:
                errors[name] = error
        response = AlterUserScramCredentialsResponse(results=list(_results(changes, errors)))
        return ControllerResult(list(changes.values()), response, is_atomic=True)

    def _record(
        self, change: _Deletion | _Upsertion
    ) -> RemoveUserScramCredentialRecord | UserScramCredentialRecord:
        if self._features.metadata_version < _SCRAM_FROM:
            text = "The current metadata.version does not support SCRAM"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        if not change.name:
            raise _unacceptable("Username must not be empty")
        if change.mechanism not in HASHES:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(change, _Upsertion):
            return self._credential(change)
        if (change.name, change.mechanism) not in self._known:
            text = "Attempt to delete a user credential that does not exist"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text)
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)

    def _credential(self, change: _Upsertion) -> UserScramCredentialRecord:
        if change.iterations < MIN_ITERATIONS:
            raise _unacceptable("Too few iterations")
        if change.iterations > MAX_ITERATIONS:
            raise _unacceptable("Too many iterations")
        is_new = (change.name, change.mechanism) not in self._known
        if is_new and len(self._known) >= MAX_CREDENTIALS:
            text = f"the cluster holds {MAX_CREDENTIALS} SCRAM credentials, the maximum"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        return credential_record(
            change.name,
            change.mechanism,
            salt=bytes(change.salt),
            salted_password=bytes(change.salted_password),
            iterations=change.iterations,
        )


def _results(
    changes: dict[str, MessageAndVersion], errors: dict[str, KafkaError]
) -> Iterator[_Result]:
    for name in changes:
        yield _Result(user=name, error_message=None)
    for name, error in errors.items():
        yield _Result(user=name, error_code=int(error.code), error_message=error.message)


def _unacceptable(text: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
