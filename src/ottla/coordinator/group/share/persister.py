"""How the group coordinator reaches the share coordinators of its groups' partitions.

Kafka: org.apache.kafka.server.share.persister.Persister.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.protocol.apis.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from ottla.protocol.apis.initialize_share_group_state import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )
    from ottla.protocol.apis.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    )
    from ottla.purgatory.pending import Pending


class SharePersister(Protocol):
    """Sends each share partition of a request to its coordinator, and retries for a time.

    The responses have a result for each share partition; no method fails as a whole.
    """

    def initialize(
        self, request: InitializeShareGroupStateRequest
    ) -> Pending[InitializeShareGroupStateResponse]:
        """Begin the states of share partitions."""

    def delete(
        self, request: DeleteShareGroupStateRequest
    ) -> Pending[DeleteShareGroupStateResponse]:
        """Forget the states of share partitions."""

    def read_summary(
        self, request: ReadShareGroupStateSummaryRequest
    ) -> Pending[ReadShareGroupStateSummaryResponse]:
        """Return start offsets and counts of completed deliveries."""
