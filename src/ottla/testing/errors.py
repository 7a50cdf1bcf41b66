"""Errors of the fixtures, shown at the test's line without Ottla's frames.

Kafka: none.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ottla.config.problems import ConfigErrors
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Callable


class ClusterError(RuntimeError):
    """A request that the cluster cannot execute; the text is one line."""


P = ParamSpec("P")
R = TypeVar("R")


def raised_at_the_call(function: Callable[P, R]) -> Callable[P, R]:
    """Make pytest show a call's errors at the line of the test that made the call.

    Unexpected exceptions keep their frames.
    """

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return function(*arguments, **keywords)
        except Exception as error:
            if isinstance(error, OttlaError | ConfigErrors) or _was_raised_by_testing(error):
                raise error.with_traceback(None) from error.__cause__
            raise

    return call


def _was_raised_by_testing(error: Exception) -> bool:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    name = "" if place is None else str(place.tb_frame.f_globals.get("__name__"))
    return name.startswith("ottla.testing.")
