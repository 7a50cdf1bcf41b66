"""Admin calls for SCRAM credentials and the client's telemetry instance id.

Kafka: org.apache.kafka.clients.admin.{UserScramCredentialsDescription, Admin.clientInstanceId}.
KIP-554, KIP-714.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, NamedTuple

from ottla.clients.admin.calls import AdminCalls
from ottla.errors import KafkaError
from ottla.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from ottla.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


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
            one.user: KafkaError(one.error_code, one.error_message)
            if one.error_code
            else tuple(
                ScramCredential(
                    SCRAM_MECHANISMS.get(info.mechanism, str(info.mechanism)), info.iterations
                )
                for info in one.credential_infos
            )
            for one in answer.results
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
