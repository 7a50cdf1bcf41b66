"""One of the two nodes that are compared: its connections and the state that cases need.

Kafka: none. Whatever a case needs first is made here once a side, in the same order on both.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, request_class, response_class, response_header_version
from ottla.protocol.frames import ResponseHeader
from ottla.records.builder import encode_batch
from ottla.types import ZERO_UUID, FileSlice
from tests.conformance.applied import CHANGES, wait_until_applied
from tests.conformance.differential.case import build
from tests.conformance.differential.normalise import Normaliser
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.schema import Request
    from ottla.types import Uuid

CLOSED, SILENT = "the connection is closed", "no answer"
CLIENT_ID = "differential"
BASE_TIME_MS = 1_700_000_000_000
WAIT_S = 60.0
SILENCE_S = 0.4


class Side:
    """Connections to one node's two listeners, and a memory of what was made there."""

    def __init__(self, name: str, ports: dict[str, int], log_dir: str) -> None:
        self.name = name
        self.ports = ports
        self.log_dir = log_dir
        self.normalise = Normaliser(ports, log_dir)
        self.label = ""
        self.replicas: tuple[int, ...] = (1,)
        """The brokers that have the topics of the cases."""
        self._is_changed = False
        self._connections: dict[str, socket.socket] = {}
        self._made: dict[str, Any] = {}

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ------------------------------------------------------------ questions

    def ask(self, key: ApiKey, version: int | None = None, /, **fields: Any) -> Any:
        """Send a request made of plain data; return the response, which must come."""
        cls = request_class(key)
        version = cls.versions.highest if version is None else version
        answer = self.answer(build(cls, version, fields), version)
        assert not isinstance(answer, str), f"{self.name}: {key.name} v{version}: {answer}"
        return answer

    def answer(
        self, request: Request, version: int, *, listener: str = "broker", silent: bool = False
    ) -> Any:
        """Return the response, or CLOSED, or SILENT where nothing may come.

        What was changed by earlier requests is applied before the first one that changes nothing.
        """
        changes = ApiKey(request.message_key) in CHANGES
        if self._is_changed and not changes:
            self.settle()
        self._is_changed = changes
        return self._answer(request, version, listener=listener, silent=silent)

    def settle(self) -> None:
        """Wait until the node has applied all changes that it has acknowledged."""
        wait_until_applied(self._answer)

    def _answer(
        self, request: Request, version: int, *, listener: str = "broker", silent: bool = False
    ) -> Any:
        key = ApiKey(request.message_key)
        parts = frames.encode_request(request, version, 7, CLIENT_ID)
        frame = b"".join(part for part in parts if not isinstance(part, FileSlice))
        body = self.exchange(frame, listener=listener, silence_s=SILENCE_S if silent else WAIT_S)
        if isinstance(body, str):
            return body
        view = memoryview(body)
        position = codec.decode_at(ResponseHeader, response_header_version(key, version), view)[1]
        response, position = codec.decode_at(response_class(key), version, view, position)
        assert position == len(view), f"{self.name}: {key.name} v{version}: bytes are left over"
        return response

    def exchange(
        self, frame: bytes, *, listener: str = "broker", silence_s: float = WAIT_S
    ) -> bytes | str:
        """Send raw bytes on the connection kept for this; return the frame that comes back."""
        connection = self._connections.get(listener)
        if connection is None:
            connection = socket.create_connection(("127.0.0.1", self.ports[listener]), WAIT_S)
            self._connections[listener] = connection
        connection.settimeout(silence_s)
        try:
            connection.sendall(frame)
            size = int.from_bytes(_receive(connection, 4), "big")
            return _receive(connection, size)
        except TimeoutError:
            connection.close()  # what comes late is no answer to the next question
            del self._connections[listener]
            return SILENT
        except (EOFError, ConnectionError):
            connection.close()
            del self._connections[listener]
            return CLOSED

    def until(self, probe: Callable[[], bool], what: str) -> None:
        """Try until something is true: metadata reach a broker after the answer."""
        wait_for(probe, WAIT_S, f"{self.name}: {what}")

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Make something on the first call for its name."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    # ------------------------------------------------------------ topics

    def topic(self, name: str, partitions: int = 1, /, **configs: str) -> str:
        """Create a topic once and wait until it is led; settings by name with underscores."""
        self.once(f"topic {name}", lambda: self._create_topic(name, partitions, configs))
        return name

    def _create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        settings = [
            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
        ]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        answer = self.ask(ApiKey.CREATE_TOPICS, topics=[{**topic, "configs": settings}])
        assert answer.topics[0].error_code == 0, (self.name, answer)
        self.until(lambda: self.is_led(name, partitions), f"{name} is led")

    def is_led(self, name: str, partitions: int) -> bool:
        """Whether all partitions of a topic can be read."""
        requested = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        topics = [{"name": name, "partitions": requested}]
        answer = self.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)
        return all(one.error_code == 0 for one in answer.topics[0].partitions)

    def topic_id(self, name: str) -> Uuid:
        """Return the id of a topic; zero when there is none."""
        answer = self.ask(ApiKey.METADATA, topics=[{"name": name}], allow_auto_topic_creation=False)
        found: Uuid = answer.topics[0].topic_id
        if found != ZERO_UUID:
            self.normalise.topic_names[found] = name
        return found

    def coordinator(self) -> None:
        """Create `__consumer_offsets`, and wait until groups are served."""
        self.once("coordinator", lambda: self.until(self._serves_groups, "groups are served"))

    def _serves_groups(self) -> bool:
        self.ask(ApiKey.FIND_COORDINATOR, 3, key="any")
        groups = [f"g{number}" for number in range(40)]
        answer = self.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=groups)
        return all(group.error_code == 0 for group in answer.groups)

    def forget(self, name: str) -> None:
        """Delete a topic and wait until the broker knows it no more."""
        self.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout_ms=10_000)
        self._made.pop(f"topic {name}", None)
        self.until(lambda: self.topic_id(name) == ZERO_UUID, f"{name} is gone")

    def filled(self, name: str, batches: int = 3, /, **configs: str) -> str:
        """Create a topic once, with that many batches of two records each."""

        def fill() -> None:
            self.topic(name, **configs)
            for number in range(batches):
                assert self.produce(name, batch(number)) == 0

        self.once(f"filled {name}", fill)
        return name

    def produce(self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> int:
        """Produce bytes to one partition; return the error code."""
        partitions = [{"index": partition, "records": records}]
        answer = self.ask(
            ApiKey.PRODUCE,
            9,
            acks=acks,
            timeout_ms=5000,
            topic_data=[{"name": topic, "partition_data": partitions}],
        )
        return int(answer.responses[0].partition_responses[0].error_code)

    def placed(self, key: ApiKey, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a request so that the first node leads what it creates."""
        return fields

    def wait_until_followed(self, topic: str, partition: int) -> None:
        """Wait until all replicas know that all records are committed; here there is one."""

    def wait_until_groups_are_committed(self) -> None:
        """Wait until all replicas have the coordinator's records; here there is one."""

    def end_offset(self, topic: str, partition: int = 0, *, timestamp: int = -1) -> int:
        """Return the end of a partition, or what another timestamp stands for."""
        requested = [{"partition_index": partition, "timestamp": timestamp}]
        topics = [{"name": topic, "partitions": requested}]
        answer = self.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)
        return int(answer.topics[0].partitions[0].offset)


def batch(number: int = 0, **options: Any) -> bytes:
    """Return a batch of two records that says its number, at a time that follows from it."""
    time_ms = BASE_TIME_MS + 1000 * number
    key, value = b"key-%d" % number, b"value-%d" % number
    records = [(time_ms, key, value, ()), (time_ms + 1, b"k", b"v", (("h", b"x"),))]
    return bytes(encode_batch(records, **options))


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
