"""A receiver of clients' metrics for tests: it keeps what it gets, and fails over some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.server.broker.telemetry import TelemetryContext, TelemetryPayload


class Receiver:
    """What arrived is in the class, for the node makes the object."""

    received: ClassVar[list[tuple[TelemetryContext, TelemetryPayload]]] = []
    open_count = 0

    def configure(self, settings: Mapping[str, Any]) -> None:
        type(self).open_count += 1

    def export_metrics(self, context: TelemetryContext, payload: TelemetryPayload) -> None:
        if payload.data == b"boom":
            raise ValueError("boom")
        self.received.append((context, payload))

    def close(self) -> None:
        type(self).open_count -= 1
