"""Responses about thousands of partitions: built in slices, one in each turn of the loop.

Kafka: none; there each request occupies one of num.io.threads threads.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def in_slices(
    call_soon: Callable[[Callable[[], None]], object],
    steps: Iterator[object],
    per_turn: int,
    response: T,
) -> Pending[T]:
    """Run the steps that fill a response, `per_turn` of them in each turn of the loop.

    call_soon(callback) calls back in the next turn. An error of a step fails the request.
    """
    answer: Pending[T] = Pending()

    def run() -> None:
        try:
            has_more = sum(1 for _ in islice(steps, per_turn)) == per_turn
        except Exception as error:  # noqa: BLE001 - answered like that of a handler
            answer.fail(error)
            return
        if has_more:
            call_soon(run)
        else:
            answer.complete(response)

    run()
    return answer
