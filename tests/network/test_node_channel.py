"""Requests to other nodes that are not answered in time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_channel import NodeChannel, OutgoingConnection
from ottla.protocol import frames
from ottla.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.purgatory.timing_wheel import TimingWheel
from tests.coordinator.harness import VirtualClock
from tests.waits import until

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_MS = 5000


class _Wire:
    """Connections of a loop to a node that answers when it is told to."""

    def __init__(self, loop: Any) -> None:
        self.connections: list[OutgoingConnection] = []
        loop.create_connection = self._connect

    async def _connect(
        self, factory: Callable[[], OutgoingConnection], *_address: object, **_options: object
    ) -> None:
        connection = factory()
        transport: Any = SimpleNamespace(write=lambda _data: None, abort=lambda: None)
        connection.connection_made(transport)
        self.connections.append(connection)

    def answer_versions(self) -> None:
        """Answer the first request of the last connection."""
        kind, key, limits = (
            ApiVersionsRequest,
            MetadataRequest.message_key,
            MetadataRequest.versions,
        )
        served = ApiVersionsResponse.ApiVersion(
            api_key=key, min_version=0, max_version=limits.highest
        )
        answer = ApiVersionsResponse(api_keys=[served])
        parts: Any = frames.encode_response(0, kind.message_key, kind.versions.highest, answer)
        frame = b"".join(parts)
        connection = self.connections[-1]
        connection.get_buffer(-1)[: len(frame)] = frame
        connection.buffer_updated(len(frame))


@pytest.mark.parametrize("answered_after_ms", [None, TIMEOUT_MS - 1, TIMEOUT_MS + 1302])
def test_the_log_tells_the_limit_that_was_asked_for(
    answered_after_ms: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of a request of whose time the connection and the versions took a part, or all of it."""
    clock = VirtualClock()
    timer = TimingWheel(0)

    async def run() -> KafkaError | None:
        loop = asyncio.get_running_loop()
        wire = _Wire(loop)
        channel = NodeChannel("test", "9", loop=loop, clock=clock, timer=timer)
        request = MetadataRequest(topics=[])
        sent = channel.send(2, ("node2", 9092), request, timeout_ms=TIMEOUT_MS)
        await until(lambda: wire.connections)
        if answered_after_ms is not None:
            clock.time_ms = answered_after_ms
            wire.answer_versions()
        clock.time_ms = TIMEOUT_MS + 1303
        timer.advance(clock.time_ms)
        assert isinstance(sent.error, KafkaError)
        return sent.error

    error = asyncio.run(run())
    assert error is not None
    assert error.code == (
        ErrorCode.NETWORK_EXCEPTION if answered_after_ms is None else ErrorCode.REQUEST_TIMED_OUT
    )
    (line,) = [record.getMessage() for record in caplog.records if record.name == "ottla.network"]
    assert line == (
        "test: node 2 at node2:9092 cannot be reached: no response within 5000 ms; retrying"
    )
