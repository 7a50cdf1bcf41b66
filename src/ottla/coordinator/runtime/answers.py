"""Combinators for pending responses: recover from an error, gather several.

Kafka: CompletableFuture.exceptionally; org.apache.kafka.server.util.FutureUtils.combineFutures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
R = TypeVar("R")


def recover(pending: Pending[T], refuse: Callable[[Exception], T]) -> Pending[T]:
    """Return a Pending that completes with refuse(error) if the given one fails."""
    if pending.succeeded:
        return pending
    result: Pending[T] = Pending()

    def finished(done: Pending[T]) -> None:
        result.complete(done.value if done.error is None else refuse(done.error))

    pending.on_done(finished)
    return result


def gather_begun(
    begun: Pending[list[Pending[T]]], combine: Callable[[list[Pending[T]]], R]
) -> Pending[R]:
    """Gather parts that are begun one after the other."""
    result: Pending[R] = Pending()

    def all_begun(done: Pending[list[Pending[T]]]) -> None:
        if done.error is not None:
            result.fail(done.error)
        else:
            gather(done.value, combine).pass_to(result)

    begun.on_done(all_begun)
    return result


def gather(parts: list[Pending[T]], combine: Callable[[list[Pending[T]]], R]) -> Pending[R]:
    """Return a Pending that completes with combine(parts) when all parts are done."""
    result: Pending[R] = Pending()
    missing = len(parts)

    def finished(_done: Pending[T] | None) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            result.complete(combine(parts))

    if not parts:
        result.complete(combine(parts))
    for part in parts:
        part.on_done(finished)
    return result
