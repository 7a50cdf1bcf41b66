"""Answers of APIs without an error code for the whole: one that refuses all is told of each item.

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
    """Return a Pending that answers a KafkaError too.

    answer(told) makes the response; told are the fields error_code and error_message of each item.
    """
    told: Pending[T] = Pending()

    def forward(done: Pending[T]) -> None:
        if isinstance(done.error, KafkaError):
            error = done.error
            told.complete(answer({"error_code": int(error.code), "error_message": error.message}))
        elif done.error is not None:
            told.fail(done.error)
        else:
            told.complete(done.value)

    pending.on_done(forward)
    return told
