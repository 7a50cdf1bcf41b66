"""Admin calls for SCRAM credentials and the client's telemetry instance id.

Kafka: org.apache.kafka.clients.admin.{UserScramCredentialsDescription, Admin.clientInstanceId}.
KIP-554, KIP-714.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
import hashlib
import secrets
from typing import TYPE_CHECKING, NamedTuple

from ottla.clients.admin.calls import AdminCalls, error_or_none
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from ottla.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SALT_BYTES = 32
SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


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
            one.user: error_or_none(one.error_code, one.error_message)
            or tuple(
                ScramCredential(
                    SCRAM_MECHANISMS.get(info.mechanism, str(info.mechanism)), info.iterations
                )
                for info in one.credential_infos
            )
            for one in answer.results
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
        number = next((key for key, name in SCRAM_MECHANISMS.items() if name == mechanism), 0)
        if not number:
            known = ", ".join(SCRAM_MECHANISMS.values())
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
        return {
            one.user: error_or_none(one.error_code, one.error_message) for one in answer.results
        }

    async def client_instance_id(self, *, timeout: float | None = None) -> Uuid:
        """Return the client instance id that the cluster assigned for metrics (KIP-714).

        Raises UnsupportedVersion if no broker receives metrics.
        """
        if not self._instance_id:
            request = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)
            answer = await self._call(request, timeout=timeout)
            self._instance_id = answer.client_instance_id
        return self._instance_id
