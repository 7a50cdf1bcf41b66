"""Kafka 4.3.0's group coordinator with the methods of ours, so that both run one transcript."""

from __future__ import annotations

import re
import socket
import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.describe_groups import DescribeGroupsRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.frames import ResponseHeader
from ottla.purgatory.pending import Pending
from ottla.types import Uuid
from tests.coordinator.harness import MemoryLog, Topics, context

if TYPE_CHECKING:
    from ottla.coordinator.group import RequestContext
    from ottla.protocol.schema import Request

QUIET_S = 0.15
"""After it no answer is expected that ours does not give."""
ANSWER_LIMIT_S = 60.0
PARTS = ("share", "share_offsets", "streams")
"""What our coordinator has the methods of some APIs in."""


class RealWorld:
    """A running Kafka in place of `World`: time is real, answers come by socket."""

    def __init__(self, port: int, quiet_s: float = QUIET_S) -> None:
        self.coordinator = RemoteCoordinator(port, quiet_s)
        self.log = MemoryLog()
        self.topics = Topics()

    def create_topics(self, **counts: int) -> None:
        """Create topics with so many partitions and learn their ids."""
        topics = [_creatable(*one) for one in counts.items()]
        self.coordinator.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while len(self.topics.ids) < len(counts) and time.monotonic() < deadline:
            answer: Any = self.coordinator.call(MetadataRequest(topics=None), 12)
            found = {t.name: Uuid(t.topic_id) for t in answer.topics if t.name in counts}
            self.topics.ids = found
        self.wait_for_coordinator()

    def wait_for_coordinator(self) -> None:
        """Return when the coordinator has loaded."""
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while time.monotonic() < deadline:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            answer: Any = self.coordinator.call(request, 4)
            listed: Any = self.coordinator.call(ListGroupsRequest(), 5)
            probe = DescribeGroupsRequest(groups=["g"])
            described: Any = self.coordinator.call(probe, 5)
            codes = (answer.coordinators[0], listed, described.groups[0])
            if not any(part.error_code for part in codes):
                break
            time.sleep(0.2)
        else:
            raise AssertionError("no coordinator")
        self._wait_for_share_coordinators()

    def _wait_for_share_coordinators(self) -> None:
        """Have the topic of share groups' states created, so that states are made at once."""
        keys = [
            f"g:{topic_id}:{index}" for topic_id in self.topics.ids.values() for index in (0, 1)
        ]
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=keys)
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while time.monotonic() < deadline:
            answer: Any = self.coordinator.call(request, 6)
            if not any(one.error_code for one in answer.coordinators):
                return
            time.sleep(0.2)
        raise AssertionError("no share coordinator")

    def advance(self, delay_ms: int) -> None:
        """Let that much real time pass."""
        time.sleep(delay_ms / 1000)
        self.coordinator.run_turn()


class ThroughTheWire:
    """Our coordinator, with each request and response encoded and decoded in its version."""

    def __init__(self, coordinator: Any, answered: list[int] | None = None) -> None:
        self._coordinator = coordinator
        self.answered = [0] if answered is None else answered
        """How many answers have come before the first request, before the second one…"""

    @property
    def runtime(self) -> Any:
        """The coordinator's own, which is no API."""
        return self._coordinator.runtime

    def __getattr__(self, name: str) -> Any:
        """Any API's method: request and context in, pending response out."""
        if name in PARTS:
            return ThroughTheWire(getattr(self._coordinator, name), self.answered)

        def ask(request: Request, *arguments: RequestContext) -> Pending[Any]:
            version = arguments[0].api_version if arguments else 0
            sent = codec.decode(type(request), version, codec.to_bytes(request, version))
            self.answered.append(0)
            pending: Pending[Any] = getattr(self._coordinator, name)(sent, *arguments)

            def received(answer: Any) -> Any:
                self.answered[-1] += 1
                answer = getattr(answer, "response", answer)  # without the topics to create
                return codec.decode(type(answer), version, codec.to_bytes(answer, version))

            return pending.then(received)

        return ask


class RemoteCoordinator:
    """Sends each request on a connection of its own, as many clients would."""

    def __init__(self, port: int, quiet_s: float) -> None:
        self._port = port
        self._quiet_s = quiet_s
        self._waiting: dict[socket.socket, tuple[ApiKey, int, Pending[Any]]] = {}
        self._expected: list[int] = []
        self._awaited = 0

    def expect(self, answered: list[int]) -> None:
        """Wait for so many answers before the first request, the second…, however late they are.

        A busy machine answers later than after QUIET_S.
        """
        self._awaited, *self._expected = answered

    def __getattr__(self, name: str) -> Any:
        """Any API's method: request and context in, pending response out."""
        if name in PARTS:
            return self

        def ask(request: Request, *arguments: RequestContext) -> Pending[Any]:
            pending = self._send(request, arguments[0] if arguments else context(0))
            self._awaited += self._expected.pop(0) if self._expected else 0
            self.run_turn()
            return pending

        return ask

    def call(self, request: Request, version: int) -> object:
        """Ask and wait."""
        pending = self._send(request, context(version))
        while not pending.done:
            self.run_turn()
        return pending.value

    def run_turn(self) -> None:
        """Take answers until none has come for a while."""
        while self._waiting:
            limit_s = ANSWER_LIMIT_S if self._awaited > 0 else self._quiet_s
            readable = wait(list(self._waiting), limit_s)
            if not readable:
                return
            for connection in [each for each in self._waiting if each in readable]:
                key, version, pending = self._waiting.pop(connection)
                self._awaited -= 1
                with connection:
                    pending.complete(_read(connection, key, version))

    def close(self) -> None:
        """Give up on what is not answered."""
        for connection in self._waiting:
            connection.close()
        self._waiting.clear()

    def _send(self, request: Request, context: RequestContext) -> Pending[Any]:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_LIMIT_S)
        parts = frames.encode_request(request, context.api_version, 1, context.client_id)
        connection.sendall(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]  # no file slices
        pending: Pending[Any] = Pending()
        self._waiting[connection] = (ApiKey(request.message_key), context.api_version, pending)
        return pending


def _creatable(name: str, count: int) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
    )


def _read(connection: socket.socket, key: ApiKey, version: int) -> object:
    size = int.from_bytes(_exactly(connection, 4), "big")
    frame = memoryview(_exactly(connection, size))
    header_version = response_header_version(key, version)
    _, position = codec.decode_at(ResponseHeader, header_version, frame)
    return codec.decode_at(response_class(key), version, frame, position)[0]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "Kafka closed the connection"
        data += more
    return data


def numbered(lines: list[str], seen: dict[str, str]) -> list[str]:
    """Replace UUIDs by numbers in order of appearance; forget the order of lines and words.

    Kafka keeps members and groups in hash maps, so their order means nothing.
    """
    pattern = re.compile(
        r"[0-9a-zA-Z_-]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
        r"|(?<![\w-])(?=[\w-]*[a-z])[\w-]{22}(?![\w-])"
    )
    shown = []
    for line in lines:
        text = pattern.sub(lambda m: seen.setdefault(m[0], f"#{len(seen) + 1}"), line)
        shown.append(" ".join(sorted(re.sub(r"[\[\]]", " ", text).split())))
    return sorted(shown)
