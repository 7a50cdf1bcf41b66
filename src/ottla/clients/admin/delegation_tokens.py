"""Admin calls for delegation tokens: create, renew, expire, describe (KIP-48, KIP-373).

Kafka: org.apache.kafka.clients.admin.{CreateDelegationTokenResult, RenewDelegationTokenResult,
ExpireDelegationTokenResult, DescribeDelegationTokenResult}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
import base64
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import AdminCalls
from ottla.protocol.apis.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from ottla.security.principal import Principal, parse_principal

if TYPE_CHECKING:
    from collections.abc import Iterable


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
        """Make a token, for this client's user or for another owner, as "User:alice"."""
        allowed = [parse_principal(one) for one in renewers]
        who = Principal("", "") if owner is None else parse_principal(owner)
        request = CreateDelegationTokenRequest(
            owner_principal_type=who.type,
            owner_principal_name=who.name,
            renewers=[
                CreateDelegationTokenRequest.CreatableRenewers(
                    principal_type=one.type, principal_name=one.name
                )
                for one in allowed
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        answer = await self._call(request, timeout=timeout)
        made_for = Principal(answer.principal_type, answer.principal_name)
        asked_by = Principal(
            answer.token_requester_principal_type, answer.token_requester_principal_name
        )
        return DelegationToken(
            answer.token_id,
            bytes(answer.hmac),
            str(made_for),
            str(asked_by if asked_by.type else made_for),
            tuple(str(one) for one in allowed),
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
        )

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int = -1, timeout: float | None = None
    ) -> int:
        """Let a token expire later; return when, in ms since 1970."""
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)
        answer = await self._call(request, timeout=timeout)
        return int(answer.expiry_timestamp_ms)

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int = -1, timeout: float | None = None
    ) -> int:
        """Let a token expire after a period, or remove it now; return when, in ms since 1970."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)
        answer = await self._call(request, timeout=timeout)
        return int(answer.expiry_timestamp_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Return the tokens of owners, or all that this client's user may see."""
        owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
        requested = None
        if owners is not None:
            requested = [
                owner(principal_type=one.type, principal_name=one.name)
                for one in map(parse_principal, owners)
            ]
        answer = await self._call(DescribeDelegationTokenRequest(owners=requested), timeout=timeout)
        return [_described(one) for one in answer.tokens]


def _described(one: Any) -> DelegationToken:
    owner = str(Principal(one.principal_type, one.principal_name))
    requester = Principal(one.token_requester_principal_type, one.token_requester_principal_name)
    return DelegationToken(
        one.token_id,
        bytes(one.hmac),
        owner,
        str(requester) if requester.type else owner,
        tuple(str(Principal(who.principal_type, who.principal_name)) for who in one.renewers),
        one.issue_timestamp,
        one.expiry_timestamp,
        one.max_timestamp,
    )
