"""Authorization of requests: the right that each API needs, and the form of a denial.

A guard runs before the handler of its API, and only where an authorizer is configured. It returns
None when everything is allowed, `Denied` with the whole response, or, after it has reduced the
request to what is allowed, a function that adds the refusals to the response. KafkaError denies
the whole request. An API without a guard is denied. A request that a broker forwards is guarded
where it is decided: by the active controller of this node (`ForwardedGuard`), or by another node,
which has the client's principal and address in the envelope. The controller knows every right that
was granted; a broker on the way may learn of one later, so it denies nothing. What it does itself
with such a request (`own_settings.py`) it does only for what its own authorizer allows.

Kafka: kafka.server.AuthHelper and the checks in KafkaApis and ControllerApis.
"""

from __future__ import annotations

from copy import copy
from functools import cache, partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.purgatory.pending import Pending
from ottla.server.requests.parts import in_parts

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
FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""APIs that a broker forwards to the active controller, which checks the rights of the client."""
_guards: dict[int, Guard] = {}


class Denied(NamedTuple):
    """A response in place of the handler's."""

    response: Any


def guards(
    *keys: int, is_enabled: Callable[[Context], bool] | None = None
) -> Callable[[Guard], Guard]:
    """Bind a function to APIs as their guard; the function itself may be called by others.

    A cluster for which the APIs are not enabled looks at no rights: their handlers refuse.
    """

    def bind(function: Guard) -> Guard:
        guard = function if is_enabled is None else _if_enabled(function, is_enabled)
        for key in keys:
            _guards[key] = guard
        return function

    return bind


def _if_enabled(guard: Guard, is_enabled: Callable[[Context], bool]) -> Guard:
    @wraps(guard)
    def guarded(ctx: Context, request: Any) -> Finish | Denied | None:
        return guard(ctx, request) if is_enabled(ctx) else None

    return guarded


@cache
def all_guards() -> Mapping[int, Guard]:
    """Return the guards by API key."""
    for name in GUARD_MODULES:
        import_module(f"ottla.server.handlers.rights.{name}")
    return _guards


def guard_of(key: int) -> Guard:
    """Return the guard of an API. Raises KafkaError for one that has none."""
    guard = all_guards().get(key)
    if guard is None:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return guard


class ForwardedGuard:
    """Guards a client's request that the active controller of this node decides."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def decide(self, request: Any, send: Callable[[Any], Pending[Any]]) -> Pending[Any]:
        """Send the allowed part of a request; add the refusals to the response.

        The request itself is not changed: it may have to be sent to another node.
        """
        reduced = copy(request)
        for field in type(request).fields:
            value = getattr(request, field.name)
            if isinstance(value, list):
                setattr(reduced, field.name, list(value))
        try:
            finish = guard_of(self._ctx.api_key)(self._ctx, reduced)
        except KafkaError as error:
            return Pending.failed(error)
        if isinstance(finish, Denied):
            return Pending.of(finish.response)
        return send(reduced) if finish is None else send(reduced).then(finish)


def call_guarded(ctx: Context, api: Api, request: Any) -> Any:
    """Call an API's handler with what its guard allows of a request, or of each of its parts."""
    if api.handler is api.whole:
        return _call_guarded(ctx, api, request)
    return in_parts(ctx, request, partial(_call_guarded, ctx, api))


def _call_guarded(ctx: Context, api: Api, request: Any) -> Any:
    if api.key in FORWARDED and ctx.listener != "controller":
        ctx.guard = ForwardedGuard(ctx)
        return api.whole(ctx, request)
    finish = guard_of(api.key)(ctx, request)
    if finish is None:
        return api.whole(ctx, request)
    if isinstance(finish, Denied):
        return finish.response
    result = api.whole(ctx, request)
    return result.then(finish) if isinstance(result, Pending) else finish(result)
