"""Responses of APIs without a top-level error code: a whole-request error is set on each item.

Kafka: AbstractRequest.getErrorResponse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import KafkaError
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def per_item_errors(pending: Pending[T], answer: Callable[[dict[str, Any]], T]) -> Pending[T]:
    """Return a Pending that also answers a KafkaError.

    answer(fields) builds the response from the error_code and error_message of each item.
    """
    result: Pending[T] = Pending()

    def forward(done: Pending[T]) -> None:
        if isinstance(done.error, KafkaError):
            error = done.error
            result.complete(answer({"error_code": int(error.code), "error_message": error.message}))
        elif done.error is not None:
            result.fail(done.error)
        else:
            result.complete(done.value)

    pending.on_done(forward)
    return result
