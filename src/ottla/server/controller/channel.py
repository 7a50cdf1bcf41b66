"""How a broker reaches the active controller: a request goes out, a response comes back.

Only messages are exchanged with the controller: it may run on this node
(`server/controller/apis.py`) or on another one (`server/controller/active_controller.py`).

Kafka: NodeToControllerChannelManager, ForwardingManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.schema import Request
    from ottla.purgatory.pending import Pending
    from ottla.security.principal import Principal


class RequestGuard(Protocol):
    """Checks the rights to a request where it is decided."""

    def decide(self, request: Any, send: Callable[[Any], Pending[Any]]) -> Pending[Any]:
        """Send what is allowed; return the answer with the refusals."""


class Requester(NamedTuple):
    """The client whose request is forwarded; Kafka's Envelope has the same."""

    principal: Principal
    client_id: str
    is_strict: bool
    """Whether the request is refused over the mutation quota, not only throttled (KIP-599)."""
    api_version: int
    """The version in which the client sent the request."""
    client_host: str
    guard: RequestGuard | None = None
    """Checks the client's rights if this node decides; None where they were checked."""


class ControllerChannel(Protocol):
    """The interface of a controller for handlers and for the broker itself."""

    def send(self, request: Request, requester: Requester | None = None) -> Pending[Any]:
        """Send a request; complete with its response when the decision is committed.

        None stands for the broker itself, which has no quota. Fails with KafkaError;
        NOT_CONTROLLER without an active controller.
        """
