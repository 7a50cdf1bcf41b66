"""The parts of a node: subsystems in a list, built bottom-up, closed top-down.

A subsystem is one `NodeParts.add` in `Node`: what it starts, the changes that it applies, what it
closes.

Kafka: the startup and shutdown of kafka.server.{BrokerServer, ControllerServer}, the publishers of
BrokerMetadataPublisher, kafka.server.{Reconfigurable, BrokerReconfigurable}.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage

log = logging.getLogger("ottla.node")


class NodePart(NamedTuple):
    """One subsystem; None stands for what it does not need."""

    name: str
    start: Callable[[], object] | None = None
    """Called once the broker is unfenced, before clients connect."""
    metadata_changed: Callable[[MetadataDelta, MetadataImage], object] | None = None
    """Called with each committed change of the metadata, the first time with all of them."""
    reconfigure: Callable[[BrokerConfig], object] | None = None
    """Called with the settings in force whenever settings of brokers have changed."""
    close: Callable[[], object] | None = None
    """Called once, also before a start; begins nothing new and releases what it has."""


class NodeParts:
    """A node's parts in the order in which they were built: each may use those before it."""

    def __init__(self) -> None:
        self._parts: list[NodePart] = []

    def add(self, part: NodePart) -> None:
        """Add a part on top of the others."""
        self._parts.append(part)

    def start(self) -> None:
        """Start the parts, the lowest first."""
        for part in self._parts:
            if part.start is not None:
                part.start()

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a change of the metadata; an error of one part stops no other part."""
        for part in self._parts:
            if part.metadata_changed is not None:
                text = "a metadata change was not applied to %s; report this as a bug, then restart"
                self._isolated(text, part.name, partial(part.metadata_changed, delta, image))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed settings; an error of one part stops no other part."""
        for part in self._parts:
            if part.reconfigure is not None:
                text = "changed settings were not applied to %s; report this as a bug, then restart"
                self._isolated(text, part.name, partial(part.reconfigure, config))

    def close(self, down_to: str = "") -> None:
        """Close the parts that are still open, the highest first.

        Those from `down_to` downwards stay open. An error of one part leaves no other one open.
        """
        while self._parts and self._parts[-1].name != down_to:
            part = self._parts.pop()
            if part.close is not None:
                self._isolated("%s was not closed; report this as a bug", part.name, part.close)

    def _isolated(self, text: str, name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:  # the other parts must still be called
            log.exception(text, name, extra={"event": "node.part_failed", "part": name})
