"""The rights that an API declares, and the step of a request in which they are checked.

A right is a function (context, request) → decision, run before the handler of its API, and only
where an authorizer is configured: None allows everything, `Reduced` what is left of the request,
`Denied` is the whole response; KafkaError refuses the whole request. No right changes the request
it is given: that may still be sent to another node, or be refused as a whole. `Right` and `Each`
declare the usual ones as data; functions are for those with rules of their own.

A request that a broker forwards is checked where it is decided: by the active controller of this
node (`ForwardedGuard`), or by another node, which has the client's principal and address in the
envelope. The controller knows every right that was granted; a broker on the way may learn of one
later, so it denies nothing but a token for another owner (`handlers/credentials.py`). What it
does itself with such a request (`handlers/configs.py`) it does only for what its own
authorizer allows.

Kafka: kafka.server.AuthHelper and the checks in KafkaApis and ControllerApis;
org.apache.kafka.common.acl.AclOperation, MetadataResponse.AUTHORIZED_OPERATIONS_OMITTED.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import partial, wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import response_class
from ottla.purgatory.pending import Pending
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.requests.parts import in_parts
from ottla.server.requests.refusals import refused_without_text, result_list, result_maker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.server.requests.context import Context

    Finish = Callable[[Any], Any]
    Check = Callable[[Context, Any], "Decision | None"]
    Order = Literal["first", "last", "in place"]

T = TypeVar("T")


class Denied(NamedTuple):
    """A response in place of the handler's."""

    response: Any


class Reduced(NamedTuple):
    """The allowed part of a request, and a function that adds the refusals to its response."""

    request: Any
    finish: Finish


Decision = Denied | Reduced
REFUSALS: Final = {
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True, slots=True)
class Right:
    """A right to the whole request: on the cluster, or on what a field of it names."""

    operation: Operation
    resource: ResourceType = ResourceType.CLUSTER
    name: str = ""
    """The field that names the resource."""
    has_text: bool = True
    """Whether the refusal has the text of its code, where its version has one."""

    def __call__(self, ctx: Context, request: Any) -> Denied | None:
        """Refuse the request, or let it pass."""
        name = getattr(request, self.name) if self.name else CLUSTER_NAME
        if name is None or ctx.authorize(self.operation, self.resource, name):
            return None
        code = REFUSALS[self.resource]
        if self.has_text:
            raise KafkaError(code)
        return Denied(refused_without_text(request, code, ctx.api_version))

    def __str__(self) -> str:
        """Name the right as the documents do."""
        return f"{self.operation.name} on the {words(self.resource)}"


@dataclass(frozen=True, slots=True)
class Each:
    """A right to each element of a list of the request; the others are refused, one by one."""

    operation: Operation
    resource: ResourceType
    elements: str
    """The list."""
    name: str | Callable[[Context, Any], str | None] | None = None
    """The field that names an element's resource, or a function that finds it; None: itself.

    What has no name is left to the handler, which does not know it either.
    """
    order: Order = "last"
    """Where Kafka has the refusals: first, last, or in the order of the request."""
    has_text: bool = True

    def __call__(self, ctx: Context, request: Any) -> Decision | None:
        """Leave the allowed elements in the request."""
        return cut(
            ctx,
            request,
            self.elements,
            partial(self._is_allowed, ctx),
            refusal(ctx, request, self.elements, REFUSALS[self.resource], has_text=self.has_text),
            order=self.order,
        )

    def _is_allowed(self, ctx: Context, element: Any) -> bool:
        if self.name is None:
            name = element
        elif isinstance(self.name, str):
            name = getattr(element, self.name)
        else:
            name = self.name(ctx, element)
        return name is None or ctx.authorize(self.operation, self.resource, name)

    def __str__(self) -> str:
        """Name the right as the documents do."""
        return f"{self.operation.name} on each {words(self.resource)}"


@dataclass(frozen=True, slots=True)
class ByHandler:
    """A right that the handler checks itself: it knows later what the request is about."""

    text: str

    def __call__(self, _ctx: Context, _request: Any) -> None:
        """Let the request pass."""

    def __str__(self) -> str:
        """Name the right as the documents do."""
        return self.text


EVERYONE: Final = ByHandler("none")
"""For what every client that may connect may send."""


def words(resource: ResourceType) -> str:
    """Return a type of resource as the documents write it."""
    return resource.name.lower().replace("_", " ")


def text_of(right: Check) -> str:
    """Return a right as the documents name it: itself, or the first line of its function."""
    if not isinstance(right, FunctionType):
        return str(right)
    return (right.__doc__ or "").partition("\n")[0].rstrip(".")


@dataclass(frozen=True, slots=True)
class InOrder:
    """Several rights, each needed; the first one that is missing refuses."""

    rights: tuple[Check, ...]

    def __call__(self, ctx: Context, request: Any) -> Decision | None:
        """Check one after the other."""
        finishes: list[Finish] = []
        for right in self.rights:
            decision = right(ctx, request)
            if isinstance(decision, Denied):
                return decision
            if decision is not None:
                request = decision.request
                finishes.append(decision.finish)
        if not finishes:
            return None

        def finish(response: Any) -> Any:
            for add in reversed(finishes):
                response = add(response)
            return response

        return Reduced(request, finish)

    def __str__(self) -> str:
        """Name the rights as the documents do."""
        return ", ".join(text_of(right) for right in self.rights)


def if_enabled(is_enabled: Callable[[Context], bool], right: Check) -> Check:
    """Look at a right only in clusters that have the API's feature: others refuse the request."""

    @wraps(right)
    def check(ctx: Context, request: Any) -> Decision | None:
        return right(ctx, request) if is_enabled(ctx) else None

    check.__doc__ = text_of(right)
    return check


# ------------------------------------------------------------------- parts for functions


def split(items: Iterable[T], is_allowed: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Return the allowed items and the denied ones, in order."""
    allowed: list[T] = []
    denied: list[T] = []
    for item in items:
        (allowed if is_allowed(item) else denied).append(item)
    return allowed, denied


def refusal(
    ctx: Context, request: Any, elements: str, code: ErrorCode, *, has_text: bool = True
) -> Callable[[Any], Any]:
    """Return a function that refuses an element of a request's list with a code."""
    make = result_maker(type(request), elements, ctx.api_version)
    text = code.text if has_text else None
    return lambda element: make(element, int(code), text)


def cut(
    ctx: Context,
    request: Any,
    elements: str,
    is_allowed: Callable[[Any], bool],
    refuse: Callable[[Any], Any],
    *,
    order: Order = "last",
) -> Decision | None:
    """Return the request with its allowed elements alone; None where all of them are.

    A request that is forwarded ends here when nothing of it is left to decide.
    """
    items = getattr(request, elements)
    decided = [(item, is_allowed(item)) for item in items]
    denied = [(position, item) for position, (item, allowed) in enumerate(decided) if not allowed]
    if not denied:
        return None
    reduced = copy(request)
    allowed = [item for item, is_allowed in decided if is_allowed]
    setattr(reduced, elements, allowed)
    out = result_list(type(request), elements, ctx.api_version)

    def finish(response: Any) -> Any:
        results = getattr(response, out)
        refusals = [refuse(item) for _, item in denied]
        if order == "first":
            results[0:0] = refusals
        elif order == "last" or len(results) != len(allowed):
            results.extend(refusals)
        else:
            by_position = dict(zip((at for at, _ in denied), refusals, strict=True))
            answered = iter(results)
            results[:] = [by_position.get(at) or next(answered) for at in range(len(decided))]
        return response

    if not allowed and ctx.api.is_forwarded:
        return Denied(finish(response_class(ctx.api_key)(**{out: []})))
    return Reduced(reduced, finish)


# ------------------------------------------------------------------- the step


class ForwardedGuard:
    """Guards a client's request that the active controller of this node decides."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def decide(self, request: Any, send: Callable[[Any], Pending[Any]]) -> Pending[Any]:
        """Send the allowed part of a request; add the refusals to the response."""
        try:
            decision = self._ctx.api.right(self._ctx, request)
        except KafkaError as error:
            return Pending.failed(error)
        if decision is None:
            return send(request)
        if isinstance(decision, Denied):
            return Pending.of(decision.response)
        return send(decision.request).then(decision.finish)


def call_guarded(ctx: Context, request: Any) -> Any:
    """Call an API's handler with what its right allows of a request, or of each of its parts."""
    if ctx.api.handler is ctx.api.whole:
        return _call_guarded(ctx, request)
    return in_parts(ctx, request, refusing_parts(ctx, request, partial(_call_guarded, ctx)))


def _call_guarded(ctx: Context, request: Any) -> Any:
    api = ctx.api
    if api.is_forwarded and ctx.listener != "controller":
        ctx.guard = ForwardedGuard(ctx)
        return api.whole(ctx, request)
    decision = api.right(ctx, request)
    if decision is None:
        return api.whole(ctx, request)
    if isinstance(decision, Denied):
        return decision.response
    return refusing(ctx, decision.request, partial(api.whole, ctx), decision.finish)


def refusing_parts(ctx: Context, whole: Any, handle: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a handler of parts: an error refuses its part alone, where the response can say so.

    The refusal of all elements at once would take a turn that is too long.
    """

    def handled(part: Any) -> Any:
        return handle(part) if part is whole else refusing(ctx, part, handle)

    return handled


def refusing(
    ctx: Context, request: Any, handle: Callable[[Any], Any], finish: Finish | None = None
) -> Any:
    """Return what a handler returns, and the refusal of the request in place of a KafkaError.

    `finish` adds what was refused before, unless the whole request is refused.
    """

    def fail(error: KafkaError) -> Any:
        response = ctx.api.form.fail(request, error, ctx.api_version)
        if finish is None or getattr(response, "error_code", None):
            return response
        return finish(response)

    try:
        result = handle(request)
    except KafkaError as error:
        return fail(error)
    if not isinstance(result, Pending):
        return result if finish is None else finish(result)
    answer: Pending[Any] = Pending()

    def answered(done: Pending[Any]) -> None:
        if isinstance(done.error, KafkaError):
            answer.complete(fail(done.error))
        else:
            (done if finish is None else done.then(finish)).pass_to(answer)

    result.on_done(answered)
    return answer


# ---------------------------------------------------------------- authorized operations

OMITTED: Final = -0x8000_0000
"""The value for operations that were not requested."""


def of_cluster(ctx: Context) -> int:
    """Return what the client may do with the cluster; nothing without DESCRIBE on it."""
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return ctx.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def with_group_operations(ctx: Context, request: Any, answer: Pending[T]) -> Pending[T]:
    """Return a response that describes groups, with the client's operations where requested."""
    if not request.include_authorized_operations:
        return answer

    def fill(response: Any) -> Any:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = ctx.operations(ResourceType.GROUP, group.group_id)
        return response

    return answer.then(fill)
