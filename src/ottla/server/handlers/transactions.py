"""InitProducerId for idempotent producers.

Kafka: KafkaApis.handleInitProducerIdRequest. Transactions are not implemented: a request with a
transactional id is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.records.batch import NO_PRODUCER_ID
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

_HIGHEST_STABLE = 5
NO_PRODUCER_EPOCH = -1


@handles(InitProducerIdRequest, highest=_HIGHEST_STABLE)
def init_producer_id(
    ctx: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
    """Return the next producer id with epoch 0."""
    if request.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST if not request.transactional_id else None
        code = code or ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        code = ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)
    return ctx.broker.producer_ids.next_id().then(
        lambda producer_id: InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    )
