"""Authorization of requests: which right each API needs, and what a denial looks like.

A guard runs before the handler of its API, and only where an authorizer is configured. It returns
None where all is allowed, `Denied` with the whole response, or a function that completes the
response of the request that it has reduced to what is allowed. KafkaError denies the request as a
whole. An API without a guard is denied.

Kafka: kafka.server.AuthHelper and the checks in KafkaApis and ControllerApis.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.server.requests.api import Api
    from ottla.server.requests.context import Context

    Finish = Callable[[Any], Any]
    Guard = Callable[[Context, Any], "Finish | Denied | None"]

GUARD_MODULES: Final = (
    "topics",
    "configs",
    "groups",
    "share_groups",
    "transactions",
    "cluster",
)
_guards: dict[int, Guard] = {}


class Denied(NamedTuple):
    """A response in place of the handler's."""

    response: Any


def guards(*keys: int) -> Callable[[Guard], Guard]:
    """Bind a function to APIs as their guard."""

    def bind(function: Guard) -> Guard:
        for key in keys:
            _guards[key] = function
        return function

    return bind


@cache
def all_guards() -> Mapping[int, Guard]:
    """Return the guards by API key."""
    for name in GUARD_MODULES:
        import_module(f"ottla.server.handlers.rights.{name}")
    return _guards


def call_guarded(ctx: Context, api: Api, request: Any) -> Any:
    """Call an API's handler with what its guard allows."""
    guard = all_guards().get(api.key)
    if guard is None:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    finish = guard(ctx, request)
    if finish is None:
        return api.handler(ctx, request)
    if isinstance(finish, Denied):
        return finish.response
    result = api.handler(ctx, request)
    return result.then(finish) if isinstance(result, Pending) else finish(result)
