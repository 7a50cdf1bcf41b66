"""Admin calls for delegation tokens, access control entries, SCRAM credentials, client ids.

Kafka: org.apache.kafka.clients.admin.{CreateDelegationTokenResult, DescribeAclsResult,
UserScramCredentialsDescription, Admin.clientInstanceId}. KIP-48, KIP-373, KIP-554, KIP-714.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
import base64
import hashlib
import secrets
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.clients.admin.calls import AdminCalls, error_of
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.apis.create_acls import CreateAclsRequest
from ottla.protocol.apis.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.apis.delete_acls import DeleteAclsRequest
from ottla.protocol.apis.describe_acls import DescribeAclsRequest
from ottla.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from ottla.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from ottla.security.principal import Principal, parse_principal
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ANY_ACL: Final = AclFilter(
    ResourceType.ANY, PatternType.ANY, None, None, None, Operation.ANY, Permission.ANY
)
"""Fits every entry."""
_SALT_BYTES = 32
_SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class DelegationToken(NamedTuple):
    """A token; its HMAC is the password and is not printed. Times are in ms since 1970."""

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def __repr__(self) -> str:
        return f"DelegationToken(token_id={self.token_id!r}, owner={self.owner!r})"

    @property
    def password(self) -> str:
        """The HMAC as a login's password: `tokenauth="true"`, token_id as the user name."""
        return base64.b64encode(self.hmac).decode()


class DelegationTokensAdmin(AdminCalls):
    """The part of the admin for delegation tokens; all calls need a login of a user."""

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = -1,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Make a delegation token (KIP-48).

        Parameters:
            owner: another user than this client's, as "User:alice" (KIP-373).
            renewers: users that may renew it besides the owner.
            max_lifetime_ms: -1 for delegation.token.max.lifetime.ms.

        Raises KafkaError, such as DELEGATION_TOKEN_AUTH_DISABLED.
        """
        allowed = [parse_principal(renewer) for renewer in renewers]
        principal = Principal("", "") if owner is None else parse_principal(owner)
        request = CreateDelegationTokenRequest(
            owner_principal_type=principal.type,
            owner_principal_name=principal.name,
            renewers=[
                CreateDelegationTokenRequest.CreatableRenewers(
                    principal_type=renewer.type, principal_name=renewer.name
                )
                for renewer in allowed
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        answer = await self._call(request, timeout=timeout)
        return _token(
            answer,
            allowed,
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
        )

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int = -1, timeout: float | None = None
    ) -> int:
        """Let a token expire later; return when, in ms since 1970.

        Parameters:
            renew_period_ms: from now; -1 for delegation.token.expiry.time.ms.
        """
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)
        answer = await self._call(request, timeout=timeout)
        return int(answer.expiry_timestamp_ms)

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int = -1, timeout: float | None = None
    ) -> int:
        """Let a token expire; return when, in ms since 1970.

        Parameters:
            expiry_period_ms: from now; -1 removes it at once.
        """
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)
        answer = await self._call(request, timeout=timeout)
        return int(answer.expiry_timestamp_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Return the tokens of owners, or all that this client's user may see."""
        owner_type = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
        requested = None
        if owners is not None:
            requested = [
                owner_type(principal_type=owner.type, principal_name=owner.name)
                for owner in map(parse_principal, owners)
            ]
        answer = await self._call(DescribeDelegationTokenRequest(owners=requested), timeout=timeout)
        return [
            _token(
                token,
                [Principal(who.principal_type, who.principal_name) for who in token.renewers],
                token.issue_timestamp,
                token.expiry_timestamp,
                token.max_timestamp,
            )
            for token in answer.tokens
        ]


def _token(token: Any, renewers: Iterable[Principal], *times_ms: int) -> DelegationToken:
    owner = Principal(token.principal_type, token.principal_name)
    requester = Principal(
        token.token_requester_principal_type, token.token_requester_principal_name
    )
    return DelegationToken(
        token.token_id,
        bytes(token.hmac),
        str(owner),
        str(requester if requester.type else owner),
        tuple(map(str, renewers)),
        *times_ms,
    )


class AclsAdmin(AdminCalls):
    """The part of the admin for access control entries."""

    async def describe_acls(
        self, acl_filter: AclFilter = ANY_ACL, *, timeout: float | None = None
    ) -> list[Acl]:
        """Return the entries that a filter fits, by default all."""
        answer = await self._call(DescribeAclsRequest(**_fields(acl_filter)), timeout=timeout)
        return [_acl(resource, acl) for resource in answer.resources for acl in resource.acls]

    async def create_acls(
        self, acls: Iterable[Acl], *, timeout: float | None = None
    ) -> dict[Acl, KafkaError | None]:
        """Store entries; one that exists is no error."""
        requested = list(dict.fromkeys(acls))
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in requested
        ]
        answer = await self._call(CreateAclsRequest(creations=creations), timeout=timeout)
        return dict(zip(requested, map(error_of, answer.results), strict=True))

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout: float | None = None
    ) -> dict[AclFilter, list[Acl] | KafkaError]:
        """Delete the entries that filters fit; return them by filter."""
        requested = list(dict.fromkeys(filters))
        filter_type = DeleteAclsRequest.DeleteAclsFilter
        request = DeleteAclsRequest(
            filters=[filter_type(**_fields(acl_filter)) for acl_filter in requested]
        )
        answer = await self._call(request, timeout=timeout)
        return {
            acl_filter: error_of(result) or [_acl(acl, acl) for acl in result.matching_acls]
            for acl_filter, result in zip(requested, answer.filter_results, strict=True)
        }


def _fields(acl_filter: AclFilter) -> dict[str, Any]:
    """Return the fields of a filter in a request."""
    return {
        "resource_type_filter": acl_filter.resource_type,
        "resource_name_filter": acl_filter.resource_name,
        "pattern_type_filter": acl_filter.pattern_type,
        "principal_filter": acl_filter.principal,
        "host_filter": acl_filter.host,
        "operation": acl_filter.operation,
        "permission_type": acl_filter.permission,
    }


def _acl(resource: Any, entry: Any) -> Acl:
    return Acl(
        ResourceType(resource.resource_type),
        PatternType(resource.pattern_type),
        resource.resource_name,
        entry.principal,
        entry.host,
        Operation(entry.operation),
        Permission(entry.permission_type),
    )


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return what a broker is given instead of a password (RFC 5802)."""
    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)


class ScramCredential(NamedTuple):
    """One credential of a user, without its secret."""

    mechanism: str
    iterations: int


class CredentialsAdmin(AdminCalls):
    """The part of the admin for users and for the client itself."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredential, ...] | KafkaError]:
        """Return the SCRAM credentials of users, or of all users that have any.

        The outcome of a user without credentials is RESOURCE_NOT_FOUND.
        """
        name = DescribeUserScramCredentialsRequest.UserName
        requested = None if users is None else [name(name=user) for user in users]
        answer = await self._call(
            DescribeUserScramCredentialsRequest(users=requested), timeout=timeout
        )
        return {
            result.user: error_of(result)
            or tuple(
                ScramCredential(
                    _SCRAM_MECHANISMS.get(info.mechanism, str(info.mechanism)), info.iterations
                )
                for info in result.credential_infos
            )
            for result in answer.results
        }

    async def alter_user_scram_credentials(
        self,
        passwords: Mapping[str, str] | None = None,
        *,
        delete: Iterable[str] = (),
        mechanism: str = "SCRAM-SHA-256",
        iterations: int = 4096,
        timeout: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Set the passwords of users for a mechanism, and delete the credentials of others.

        Passwords are salted here; they do not leave this process.
        """
        number = next((key for key, name in _SCRAM_MECHANISMS.items() if name == mechanism), 0)
        if not number:
            known = ", ".join(_SCRAM_MECHANISMS.values())
            raise KafkaError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"{mechanism} is none of {known}"
            )
        request = AlterUserScramCredentialsRequest
        upsertions = []
        for user, password in (passwords or {}).items():
            salt = secrets.token_bytes(_SALT_BYTES)
            upsertions.append(
                request.ScramCredentialUpsertion(
                    name=user,
                    mechanism=number,
                    iterations=iterations,
                    salt=salt,
                    salted_password=salted_password(mechanism, password, salt, iterations),
                )
            )
        deletions = [
            request.ScramCredentialDeletion(name=user, mechanism=number) for user in delete
        ]
        answer = await self._call(
            request(deletions=deletions, upsertions=upsertions), timeout=timeout
        )
        return {result.user: error_of(result) for result in answer.results}

    async def client_instance_id(self, *, timeout: float | None = None) -> Uuid:
        """Return the client instance id that the cluster assigned for metrics (KIP-714).

        Raises UnsupportedVersion if no broker receives metrics.
        """
        if not self._instance_id:
            request = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)
            answer = await self._call(request, timeout=timeout)
            self._instance_id = answer.client_instance_id
        return self._instance_id
