"""The asyncio admin client.

Kafka: org.apache.kafka.clients.admin.Admin.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING

from ottla.clients.admin.cluster import ClusterAdmin
from ottla.clients.admin.configs import ConfigsAdmin
from ottla.clients.admin.quorum import QuorumAdmin
from ottla.clients.admin.quotas import QuotasAdmin
from ottla.clients.admin.security import AclsAdmin, CredentialsAdmin, DelegationTokensAdmin
from ottla.clients.admin.share_groups import ShareGroupsAdmin
from ottla.clients.admin.streams_groups import StreamsGroupsAdmin
from ottla.clients.admin.topics import TopicsAdmin
from ottla.clients.admin.transactions import TransactionsAdmin

if TYPE_CHECKING:
    from typing import Any, Self

    from ottla.protocol.schema import Request


class AsyncAdmin(
    TopicsAdmin,
    ClusterAdmin,
    TransactionsAdmin,
    ConfigsAdmin,
    StreamsGroupsAdmin,
    ShareGroupsAdmin,
    QuotasAdmin,
    QuorumAdmin,
    CredentialsAdmin,
    DelegationTokensAdmin,
    AclsAdmin,
):
    """Manages a cluster from coroutines. Use as `async with AsyncAdmin(...) as admin`.

    Methods on several resources return an outcome for each, which may be a KafkaError; methods on
    one resource raise it. Every method retries for `timeout` seconds, by default
    default.api.timeout.ms. Parameters are those of Admin.

        >>> async def main():
        ...     async with AsyncAdmin(bootstrap_servers=servers) as admin:
        ...         return (await admin.describe_cluster()).controller.node_id
        >>> asyncio.run(main())
        1
    """

    async def start(self) -> Self:
        """Bind to the running loop; called by `async with` and by the first call."""
        self._runtime.attach()
        return self

    async def request(
        self,
        request: Request,
        node_id: int | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Send any request of the protocol and return its response, for APIs without a method."""
        return await self._call(request, timeout=timeout, node_id=node_id, error_of=lambda _: 0)
