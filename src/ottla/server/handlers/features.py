"""UpdateFeatures: raise or lower the levels that the cluster has agreed on.

Kafka: ControllerApis.handleUpdateFeatures (KIP-584, KIP-778).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.server.requests.dispatch import handles

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


@handles(UpdateFeaturesRequest)
def update_features(
    ctx: Context, request: UpdateFeaturesRequest
) -> Pending[UpdateFeaturesResponse]:
    """Change all levels asked for, or none; only look when `validate_only` says so."""
    return ctx.broker.controller.update_features(request)
