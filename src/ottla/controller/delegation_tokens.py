"""Delegation tokens (KIP-48, KIP-373), and SCRAM credentials, of which no password is kept.

Kafka: org.apache.kafka.controller.DelegationTokenControlManager (KIP-900);
org.apache.kafka.controller.ScramControlManager (KIP-900).
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
from ottla.protocol.apis.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.apis.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.protocol.apis.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.protocol.records.metadata import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.security.delegation_token import is_owner_or_renewer, token_hmac
from ottla.security.principal import USER_TYPE, Principal
from ottla.timeline import TimelineDict
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from ottla.config.broker import BrokerConfig
    from ottla.controller.features import FeatureControl
    from ottla.timeline import SnapshotRegistry


_SCRAM_FROM: Final = 11
"""The level of metadata.version from which there are such records."""
_MAX_CREDENTIALS: Final = 100_000
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
        if is_new and len(self._known) >= _MAX_CREDENTIALS:
            text = f"the cluster holds {_MAX_CREDENTIALS} SCRAM credentials, the maximum"
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


_TOKENS_FROM: Final = 14
"""The level of metadata.version from which there are such records."""
MAX_TOKENS: Final = 100_000
"""Most tokens in the cluster; each needs memory on every node."""
_REMOVALS_PER_SWEEP: Final = 1000
_ID_BYTES: Final = 16
_MAX_TIME_MS: Final = 2**63 - 1


class DelegationTokenControl:
    """The tokens, by id and by HMAC."""

    def __init__(
        self,
        registry: SnapshotRegistry,
        features: FeatureControl,
        config: BrokerConfig,
        rng: Random,
    ) -> None:
        secret = config.delegation_token_secret_key
        self._secret = None if secret is None else secret.reveal()
        self._max_lifetime_ms: int = config.delegation_token_max_lifetime_ms
        self._renew_period_ms: int = config.delegation_token_expiry_time_ms
        self._features = features
        self._rng = rng
        self._by_id: TimelineDict[str, DelegationTokenRecord] = TimelineDict(registry)
        self._ids: TimelineDict[bytes, str] = TimelineDict(registry)

    def replay_token(self, record: DelegationTokenRecord) -> None:
        """Add or replace a token."""
        self._by_id[record.token_id] = record
        if self._secret is not None:
            self._ids[token_hmac(self._secret, record.token_id)] = record.token_id

    def replay_remove(self, record: RemoveDelegationTokenRecord) -> None:
        """Remove a token."""
        self._by_id.pop(record.token_id, None)
        if self._secret is not None:
            self._ids.pop(token_hmac(self._secret, record.token_id), None)

    def create(
        self, request: CreateDelegationTokenRequest, requester: Principal, now_ms: int
    ) -> ControllerResult[CreateDelegationTokenResponse]:
        """Make a token for the requester, or for the owner that it may act for."""
        owner = owner_of(request, requester)
        response = CreateDelegationTokenResponse(
            principal_type=owner.type,
            principal_name=owner.name,
            token_requester_principal_type=requester.type,
            token_requester_principal_name=requester.name,
        )
        try:
            secret = self._enabled()
            token = self._new_token(request, owner, requester, now_ms)
        except KafkaError as error:
            response.error_code = int(error.code)
            return ControllerResult([], response)
        response.issue_timestamp_ms = token.issue_timestamp
        response.expiry_timestamp_ms = token.expiration_timestamp
        response.max_timestamp_ms = token.max_timestamp
        response.token_id = token.token_id
        response.hmac = token_hmac(secret, token.token_id)
        return ControllerResult([MessageAndVersion(token, 0)], response)

    def _enabled(self) -> str:
        """Return the secret; KafkaError without one, or where the log cannot hold tokens."""
        if self._secret is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        if self._features.metadata_version < _TOKENS_FROM:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return self._secret

    def _new_token(
        self,
        request: CreateDelegationTokenRequest,
        owner: Principal,
        requester: Principal,
        now_ms: int,
    ) -> DelegationTokenRecord:
        if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        if len(self._by_id) >= MAX_TOKENS:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        requested_ms = request.max_lifetime_ms
        lifetime_ms = (
            self._max_lifetime_ms if requested_ms <= 0 else min(self._max_lifetime_ms, requested_ms)
        )
        max_ms = _sum(now_ms, lifetime_ms)
        renewers = [
            str(Principal(renewer.principal_type, renewer.principal_name))
            for renewer in request.renewers
        ]
        return DelegationTokenRecord(
            owner=str(owner),
            requester=str(requester),
            renewers=renewers,
            issue_timestamp=now_ms,
            max_timestamp=max_ms,
            expiration_timestamp=min(max_ms, _sum(now_ms, self._renew_period_ms)),
            token_id=str(Uuid.drawn(lambda: self._rng.randbytes(_ID_BYTES))),
        )

    def renew(
        self, request: RenewDelegationTokenRequest, requester: Principal, now_ms: int
    ) -> ControllerResult[RenewDelegationTokenResponse]:
        """Renew a token, up to its maximum lifetime."""
        try:
            token = self._found(request.hmac)
            _check_alive(token, now_ms)
            _check_owner(token, requester)
        except KafkaError as error:
            return ControllerResult([], RenewDelegationTokenResponse(error_code=int(error.code)))
        requested_ms = request.renew_period_ms
        period_ms = (
            self._renew_period_ms if requested_ms <= 0 else min(self._renew_period_ms, requested_ms)
        )
        changed = _expiring(token, min(token.max_timestamp, _sum(now_ms, period_ms)))
        response = RenewDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp)
        return ControllerResult([MessageAndVersion(changed, 0)], response)

    def expire(
        self, request: ExpireDelegationTokenRequest, requester: Principal, now_ms: int
    ) -> ControllerResult[ExpireDelegationTokenResponse]:
        """Let a token expire after a period, or remove it now when that is negative."""
        try:
            token = self._found(request.hmac)
            _check_owner(token, requester)
            if request.expiry_time_period_ms < 0:
                removal = RemoveDelegationTokenRecord(token_id=token.token_id)
                now = ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms)
                return ControllerResult([MessageAndVersion(removal, 0)], now)
            _check_alive(token, now_ms)
        except KafkaError as error:
            return ControllerResult([], ExpireDelegationTokenResponse(error_code=int(error.code)))
        expiry_ms = min(token.max_timestamp, _sum(now_ms, request.expiry_time_period_ms))
        response = ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
        return ControllerResult([MessageAndVersion(_expiring(token, expiry_ms), 0)], response)

    def _found(self, hmac: bytes) -> DelegationTokenRecord:
        self._enabled()
        token_id = self._ids.get(bytes(hmac))
        if token_id is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return self._by_id[token_id]

    def sweep(self, now_ms: int) -> ControllerResult[None]:
        """Remove expired tokens, a limited number at a time."""
        expired: list[MessageAndVersion] = []
        for token in self._by_id.values():
            if len(expired) == _REMOVALS_PER_SWEEP:
                break
            if min(token.max_timestamp, token.expiration_timestamp) < now_ms:
                removal = RemoveDelegationTokenRecord(token_id=token.token_id)
                expired.append(MessageAndVersion(removal, 0))
        return ControllerResult(expired, None, is_atomic=False)


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """Return the owner of the requested token."""
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def _check_alive(token: DelegationTokenRecord, now_ms: int) -> None:
    if min(token.max_timestamp, token.expiration_timestamp) < now_ms:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_owner(token: DelegationTokenRecord, requester: Principal) -> None:
    if not is_owner_or_renewer(token, str(requester)):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _expiring(token: DelegationTokenRecord, expiry_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiry_ms,
        token_id=token.token_id,
    )


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _MAX_TIME_MS)
