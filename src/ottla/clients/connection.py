"""One connection of a client across reconnects.

Kafka: org.apache.kafka.clients.ClusterConnectionStates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.network.request_channel import Channel
    from ottla.types import Node


class NodeConnection:
    """The state of one connection across reconnects."""

    __slots__ = (
        "channel",
        "failures",
        "has_answered",
        "is_open",
        "node",
        "open_at_ms",
        "setup_deadline_ms",
    )

    def __init__(self, node: Node, channel: Channel) -> None:
        self.node = node
        self.channel = channel
        self.failures = 0
        self.has_answered = False  # a request, since it was opened
        self.is_open = False  # the transport opens it or has it open
        self.open_at_ms = 0
        self.setup_deadline_ms = 0

    @property
    def address(self) -> str:
        """The address of the node."""
        return f"{self.node.host}:{self.node.port}"

    @property
    def opening_due_ms(self) -> int:
        """When it must be open, or may be opened again."""
        return self.setup_deadline_ms if self.is_open else self.open_at_ms
