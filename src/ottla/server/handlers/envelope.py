"""Envelope: a client's request that a broker forwards is handled as if the client had sent it here.

Kafka: ControllerApis.handleEnvelopeRequest, EnvelopeUtils (KIP-590).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol import codec
from ottla.protocol.apis.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.records.principal import DefaultPrincipalData
from ottla.protocol.request_header import split_header
from ottla.purgatory.pending import Pending, as_pending
from ottla.quota.connections import plain_address
from ottla.security.acl import Operation
from ottla.security.principal import Principal
from ottla.server.requests.api import handles, served_apis
from ottla.server.requests.context import Context
from ottla.server.requests.parts import LargeRequest, decoded
from ottla.server.requests.rights import Right, call_guarded, refusing

if TYPE_CHECKING:
    from ottla.protocol.schema import Request
    from ottla.server.controller.channel import ControllerChannel, Requester
    from ottla.server.requests.api import Api

_ADDRESS_BYTES: Final = (4, 16)
_VERSION_BYTES: Final = 2


class _ObservedController:
    """The node's own controller; remembers that it was not the active one."""

    def __init__(self, controller: ControllerChannel) -> None:
        self._controller = controller
        self.is_standby = False

    def send(self, request: Request, requester: Requester | None = None) -> Pending[Any]:
        """Send a request."""
        answer = self._controller.send(request, requester)
        answer.on_done(self._note)
        return answer

    def _note(self, done: Pending[Any]) -> None:
        error = done.error
        self.is_standby |= isinstance(error, KafkaError) and error.code is ErrorCode.NOT_CONTROLLER


class ForwardedContext(Context):
    """The context of a request inside an envelope."""

    __slots__ = ("_client", "_controller", "_principal")

    def __init__(
        self, outer: Context, api: Api, header: Any, principal: Principal, client: str
    ) -> None:
        super().__init__(outer.broker, outer.connection, outer.listener, api, header)
        self._principal = principal
        self._client = client
        self._controller = _ObservedController(outer.controller)

    @property
    def principal(self) -> Principal:
        """The principal in the envelope."""
        return self._principal

    @property
    def client(self) -> str:
        """The client's address."""
        return self._client

    @property
    def is_forwarded(self) -> bool:
        """A broker repeats the request at another controller where this one is a standby."""
        return True

    @property
    def controller(self) -> ControllerChannel:
        """The controller of this node."""
        return self._controller

    @property
    def is_refused(self) -> bool:
        """Whether another controller must decide."""
        return self._controller.is_standby


@handles(EnvelopeRequest, right=Right(Operation.CLUSTER_ACTION), throttled=False)
def envelope(ctx: Context, request: EnvelopeRequest) -> EnvelopeResponse | Pending[Any]:
    """Handle the request inside; on NOT_CONTROLLER the broker sends it to another controller."""
    principal, client = _sender(request)
    header = split_header(memoryview(request.request_data))
    api = served_apis(ctx.listener).get(header[0])
    if api is None or not api.is_forwarded:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"api key {header[0]} is not forwarded")
    if not api.lowest <= header[1] <= api.highest:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    inner = ForwardedContext(ctx, api, header, principal, client)
    try:
        result = _handled(inner, api.form.read(header[4], header[1]))
    except LargeRequest as large:
        result = _handled_large(inner, large)
    if isinstance(result, Pending):
        return result.then(partial(_answer, inner))
    return _answer(inner, result)


def _handled(ctx: ForwardedContext, request: Any) -> Any:
    """Handle the request with the rights of its client; a denial is an answer, too."""
    handle = ctx.api.handler if ctx.broker.authorizer is None else call_guarded
    return refusing(ctx, request, partial(handle, ctx))


def _handled_large(ctx: ForwardedContext, large: LargeRequest) -> Pending[Any]:
    answer: Pending[Any] = Pending()

    def handle(done: Pending[Any]) -> None:
        if done.error is not None:
            answer.fail(done.error)
            return
        try:
            result = _handled(ctx, done.value)
        except Exception as error:  # noqa: BLE001 - the dispatcher answers it
            answer.fail(error)
            return
        as_pending(result).pass_to(answer)

    decoded(ctx, large).on_done(handle)
    return answer


def _answer(ctx: ForwardedContext, response: Any) -> EnvelopeResponse:
    if ctx.is_refused or response is None:
        code = ErrorCode.NOT_CONTROLLER if ctx.is_refused else ErrorCode.UNKNOWN_SERVER_ERROR
        return EnvelopeResponse(error_code=int(code))
    frame = ctx.api.form.write(response, ctx.correlation_id, ctx.api_version, 0)
    data = frame if isinstance(frame, bytes) else b"".join(frame)  # type: ignore[arg-type] # no file slices
    return EnvelopeResponse(response_data=data[4:])


def _sender(request: EnvelopeRequest) -> tuple[Principal, str]:
    """Return the principal and the client's address."""
    try:
        data = request.request_principal or b""
        if data[:_VERSION_BYTES] != bytes(_VERSION_BYTES):
            raise CorruptMessage("an unknown version of a principal")
        principal, _ = codec.decode_at(DefaultPrincipalData, 0, memoryview(data), _VERSION_BYTES)
    except CorruptMessage as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from error
    if len(request.client_host_address) not in _ADDRESS_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Failed to parse client address")
    found = Principal(principal.type, principal.name, principal.token_authenticated)
    return found, plain_address(bytes(request.client_host_address))
