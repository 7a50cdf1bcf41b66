"""UpdateFeatures: raise or lower the finalised feature levels of the cluster.

Kafka: ControllerApis.handleUpdateFeatures (KIP-584, KIP-778).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.security.acl import Operation
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Right

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


@handles(UpdateFeaturesRequest, right=Right(Operation.ALTER), forwarded=True)
def update_features(
    ctx: Context, request: UpdateFeaturesRequest
) -> Pending[UpdateFeaturesResponse]:
    """Change all requested levels or none; with `validate_only` only check them."""
    return ctx.controller.send(request, ctx.requester())
