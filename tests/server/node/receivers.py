"""A receiver of clients' metrics for tests: it keeps what it gets, and fails over some."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.server.node import plugins

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

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


def register(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Let an installed package offer a class to changes of settings over the network."""
    module, _, name = path.rpartition(".")

    def offered(group: str) -> list[EntryPoint]:
        return [EntryPoint(name, f"{module}:{name}", group)] * (group == plugins.PLUGINS_GROUP)

    monkeypatch.setattr(plugins, "entry_points", offered)
