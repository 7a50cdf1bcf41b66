"""The requests of this member of the quorum to the others: one connection to each.

A connection is opened by the first request to its node. A request waits for the connection and for
the versions that the node serves; without a response in time it fails, and the connection with it,
because the response may still come.

Kafka: org.apache.kafka.raft.KafkaNetworkChannel.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.metadata.features import KRAFT_VERSION
from ottla.network.outgoing import OutgoingConnection
from ottla.network.request_channel import Channel
from ottla.purgatory.pending import Pending
from ottla.raft.requests import (
    FIRST_BOOTSTRAP_ID,
    NO_LEADER,
    DescribeVersions,
    LeaderAndEpoch,
    VersionsResponse,
)
from ottla.raft.wire import requests, responses

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from ottla.clock import Clock
    from ottla.protocol.apis.api_versions import ApiVersionsResponse
    from ottla.purgatory.timing_wheel import TimerTask, TimingWheel
    from ottla.raft.requests import Request, Response
    from ottla.raft.voter_set import VoterEndpoint
    from ottla.types import SendItem

log = logging.getLogger("ottla.raft")
RECONNECT_BACKOFF_MS: Final = 50
Address = tuple[str, int]


class QuorumSettings(NamedTuple):
    """Who asks, and where the quorum is found."""

    node_id: int
    cluster_id: str
    listener: str
    """The first of controller.listener.names: the other controllers are reached on it."""
    bootstrap: Sequence[Address]
    """controller.quorum.bootstrap.servers; they have the node ids -2, -3, ..."""
    request_timeout_ms: int


class QuorumChannel:
    """Sends requests to nodes; `send` is what `RaftDriver` takes."""

    def __init__(
        self,
        settings: QuorumSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timer: TimingWheel,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._clock = clock
        self._timer = timer
        self._links: dict[int, _Link] = {}
        self._may_connect_ms: dict[int, int] = {}
        """When a node whose connection failed is tried again."""
        self._is_closed = False

    def send(
        self, node_id: int, endpoints: tuple[VoterEndpoint, ...], request: Request
    ) -> Pending[Response]:
        """Send a request; fails with KafkaError when there is no response in time."""
        answer: Pending[Response] = Pending()
        address = self._address(node_id, endpoints)
        now_ms = self._clock.monotonic_ms()
        if address is None:
            text = f"node {node_id} has no address on listener {self._settings.listener}"
            answer.fail(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text))
            return answer
        link = self._links.get(node_id)
        if link is not None and link.address != address:
            link.close()
            link = None
        if link is None:
            if self._is_closed or now_ms < self._may_connect_ms.get(node_id, 0):
                text = f"node {node_id} at {address[0]}:{address[1]} is not connected"
                answer.fail(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text))
                return answer
            link = self._links[node_id] = _Link(self, self._settings, node_id, address)
            link.connect(self._loop)
        link.send(request, answer, now_ms)
        if not answer.done:
            task = self._timer.add(now_ms + self._settings.request_timeout_ms, link.expire)
            answer.on_done(lambda _: _cancel(task))
        return answer

    def _address(self, node_id: int, endpoints: tuple[VoterEndpoint, ...]) -> Address | None:
        """Return where a node is reached, None when that is not known."""
        number = FIRST_BOOTSTRAP_ID - node_id
        if 0 <= number < len(self._settings.bootstrap):
            return self._settings.bootstrap[number]
        for end in endpoints:
            if end.listener_name == self._settings.listener:
                return end.host, end.port
        return None

    def now_ms(self) -> int:
        """Return the monotonic time."""
        return self._clock.monotonic_ms()

    def ended(self, link: _Link, reason: str | None) -> None:
        """Forget a connection that has ended; without a reason no request waited for it."""
        node_id, (host, port) = link.node_id, link.address
        if self._links.get(node_id) is not link:
            return
        del self._links[node_id]
        if reason is None:
            return
        if node_id not in self._may_connect_ms and not self._is_closed:
            text = "quorum: the controller at %s:%d (node %d) cannot be reached: %s; trying on"
            log.warning(text, host, port, node_id, reason, extra={"event": "quorum.unreachable"})
        self._may_connect_ms[node_id] = self._clock.monotonic_ms() + RECONNECT_BACKOFF_MS

    def answered(self, node_id: int) -> None:
        """Note that a node can be reached."""
        if self._may_connect_ms.pop(node_id, None) is not None:
            text = "quorum: the controller of node %d answers again"
            log.info(text, node_id, extra={"event": "quorum.reachable"})

    def close(self) -> None:
        """Close all connections; what waits fails, and so does all that is sent later."""
        self._is_closed = True
        for link in list(self._links.values()):
            link.close()


class _Waiting(NamedTuple):
    """A request that waits for the connection."""

    request: Request
    answer: Pending[Response]
    deadline_ms: int


class _Link:
    """One connection to one node."""

    def __init__(
        self, owner: QuorumChannel, settings: QuorumSettings, node_id: int, address: Address
    ) -> None:
        self.node_id = node_id
        self.address = address
        self._owner = owner
        self._settings = settings
        self._channel = Channel(f"raft-client-{settings.node_id}")
        self._connection = OutgoingConnection(self)
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[_Waiting] = []
        self._is_closed = False

    def connect(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the connection."""
        self._connecting = loop.create_task(self._connect(loop))

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await loop.create_connection(lambda: self._connection, *self.address)
        except (OSError, ValueError) as error:  # ValueError: no valid host name
            self._end(str(error) or type(error).__name__)

    def send(self, request: Request, answer: Pending[Response], now_ms: int) -> None:
        """Send a request now or when the connection is ready."""
        timeout_ms = self._settings.request_timeout_ms
        if self._channel.ready:
            self._submit(request, answer, timeout_ms, now_ms)
        else:
            self._waiting.append(_Waiting(request, answer, now_ms + timeout_ms))

    def _submit(
        self, request: Request, answer: Pending[Response], timeout_ms: int, now_ms: int
    ) -> None:
        if isinstance(request, DescribeVersions):
            assert self._channel.features is not None
            answer.complete(_versions_of(self._channel.features))
            return
        try:
            cls = requests.message_class(request)
            served = self._channel.versions.get(cls.message_key, (0, cls.versions.highest))
            version = min(served[1], cls.versions.highest)
            message = requests.to_message(request, version, cluster_id=self._settings.cluster_id)
        except KafkaError as error:
            answer.fail(error)
            return
        sent = self._channel.submit(
            message, now_ms=now_ms, timeout_ms=timeout_ms, max_version=version
        )
        self._flush()
        sent.then(lambda got: responses.from_message(got, self._settings.listener)).on_done(
            lambda done: _forward(done, answer)
        )

    def _flush(self) -> None:
        outgoing: list[SendItem] = self._channel.outgoing
        if outgoing:
            self._connection.send(outgoing[:])  # type: ignore[arg-type] # requests hold no files
            outgoing.clear()

    # Events of the connection

    def connected(self) -> None:
        """Ask for the versions."""
        if self._is_closed:
            self._connection.abort()
            return
        timeout_ms = self._settings.request_timeout_ms
        self._channel.connected(self._owner.now_ms(), timeout_ms=timeout_ms)
        self._flush()

    def received(self, frame: memoryview) -> None:
        """Complete a request; those that waited for the versions go out."""
        if self._is_closed:
            return
        try:
            self._channel.receive(frame, self._owner.now_ms())
        except CorruptMessage as error:
            self._end(str(error))
            return
        self._owner.answered(self.node_id)
        self._flush()
        if self._channel.ready and self._waiting:
            waiting, self._waiting = self._waiting, []
            now_ms = self._owner.now_ms()
            for request, answer, deadline_ms in waiting:
                self._submit(request, answer, deadline_ms - now_ms, now_ms)

    def lost(self, error: Exception | None) -> None:
        """Fail what waits for a response."""
        self._end("the connection was closed" if error is None else str(error))

    def expire(self, now_ms: int) -> None:
        """End the connection when a request waited too long for its response."""
        late = any(one.deadline_ms <= now_ms for one in self._waiting)
        if not self._is_closed and (late or self._channel.expire(now_ms)):
            self._end(f"no response within {self._settings.request_timeout_ms} ms")

    def close(self) -> None:
        """End the connection."""
        self._end("this node closes it", is_fault=False)

    def _end(self, reason: str, *, is_fault: bool = True) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        self._connection.abort()
        is_fault = is_fault and bool(self._waiting or self._channel.in_flight)
        self._owner.ended(self, reason if is_fault else None)
        error = KafkaError(ErrorCode.NETWORK_EXCEPTION, reason)
        self._channel.closed(error)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.answer.fail(error)


def _cancel(task: TimerTask) -> None:
    task.cancel()


def _forward(done: Pending[Any], answer: Pending[Response]) -> None:
    if done.error is not None:
        answer.fail(done.error)
    else:
        answer.complete(done.value)


def _versions_of(response: ApiVersionsResponse) -> VersionsResponse:
    """Return the levels of kraft.version that a node supports: 0 where it names none."""
    error = responses.error_of(response.error_code)
    leader = LeaderAndEpoch(NO_LEADER, -1)
    for one in response.supported_features:
        if one.name == KRAFT_VERSION:
            return VersionsResponse(error, leader, one.min_version, one.max_version)
    return VersionsResponse(error, leader, 0, 0)
