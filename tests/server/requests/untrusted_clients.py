"""Raw conversations with a live node: frames as bytes, answers as messages."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.frames import ResponseHeader

if TYPE_CHECKING:
    from ottla.protocol.schema import Request
    from ottla.testing.cluster import Cluster
    from ottla.types import SendItem

Topic = ProduceRequest.TopicProduceData
PRODUCE_VERSION = 9


class Peer:
    """One connection to a node."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), 30)
        self.sock.settimeout(60)

    def close(self) -> None:
        self.sock.close()

    __del__ = close

    def ask(self, request: Request, version: int) -> Any:
        """Send a request, return its answer."""
        self.sock.sendall(joined(frames.encode_request(request, version, 5, "test")))
        key = ApiKey(request.message_key)
        answer = memoryview(self.read_frame())
        header, position = codec.decode_at(
            ResponseHeader, response_header_version(key, version), answer
        )
        assert header.correlation_id == 5
        return codec.decode_at(response_class(key), version, answer, position)[0]

    def read_frame(self) -> bytes:
        """Return one answer; EOFError when the connection is closed instead."""
        return self._read(int.from_bytes(self._read(4), "big"))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def is_closed_after(self, data: bytes) -> bool:
        """Send bytes; whether the node closes the connection without a byte of answer."""
        try:
            self.sock.sendall(data)
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True
        finally:
            self.close()

    def is_served(self) -> bool:
        """Whether an ordinary question is answered."""
        return bool(self.ask(MetadataRequest(topics=[]), 12).brokers)


def joined(parts: list[SendItem]) -> bytes:
    """Return the parts of a frame as one."""
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type] # no slices in requests


def create_topic(cluster: Cluster, *names: str) -> list[int]:
    """Create topics of one partition; return the error codes."""
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in names
    ]
    peer = Peer(cluster.bootstrap)
    try:
        answer = peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    finally:
        peer.close()
    return [topic.error_code for topic in answer.topics]


def produce(peer: Peer, topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> int:
    """Produce bytes as the records of one partition; return the error code."""
    data = Topic(
        name=topic,
        partition_data=[Topic.PartitionProduceData(index=partition, records=records)],
    )
    answer = peer.ask(
        ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[data]), PRODUCE_VERSION
    )
    return int(answer.responses[0].partition_responses[0].error_code)
