"""Requests to brokers of either kind over plain sockets, and what they answer of a cluster."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

from ottla.errors import CorruptMessage
from ottla.metadata.framing import decode_record
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.frames import ResponseHeader
from ottla.protocol.records.metadata import BrokerRegistrationChangeRecord
from ottla.records.batch import RecordBatch
from ottla.records.builder import encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ottla.protocol.schema import Request

_Creatable = CreateTopicsRequest.CreatableTopic
_Offsets = ListOffsetsRequest.ListOffsetsTopic
_Data = ProduceRequest.TopicProduceData
LATEST = -1
BATCH = bytes(encode_batch([(0, None, bytes(100), ())]))


class Peer:
    """One connection to a broker; one request at a time."""

    def __init__(self, port: int, timeout_seconds: float = 120) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout_seconds)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def ask(self, request: Request, version: int) -> Any:
        """Send a request and return the response; OSError when the connection breaks."""
        parts = frames.encode_request(request, version, 5, "size")
        self._sock.sendall(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type] # no slices in requests
        key = ApiKey(request.message_key)
        answer = memoryview(self._read(int.from_bytes(self._read(4), "big")))
        header = response_header_version(key, version)
        position = codec.decode_at(ResponseHeader, header, answer)[1]
        return codec.decode_at(response_class(key), version, answer, position)[0]

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            if not more:
                raise ConnectionResetError("closed by the broker")
            data += more
        return data

    def metadata(self, topics: Iterable[str] | None = None) -> Any:
        """Return the metadata of topics; None: of all."""
        one = MetadataRequest.MetadataRequestTopic
        named = None if topics is None else [one(name=name) for name in topics]
        return self.ask(MetadataRequest(topics=named, allow_auto_topic_creation=False), 12)

    def produce(self, topic: str, partition: int = 0, timeout_ms: int = 1000) -> int:
        """Write a record with acks=all and return the error code."""
        data = _Data.PartitionProduceData(index=partition, records=BATCH)
        topics = [_Data(name=topic, partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=topics)
        return int(self.ask(request, 9).responses[0].partition_responses[0].error_code)


def create(peer: Peer, sizes: Mapping[str, int], replicas: int = 3) -> None:
    """Create topics of so many partitions in one request."""
    topics = [
        _Creatable(
            name=name, num_partitions=size, replication_factor=replicas, assignments=[], configs=[]
        )
        for name, size in sizes.items()
    ]
    answer = peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=120_000), 7)
    errors = {one.error_message for one in answer.topics if one.error_code}
    if errors:
        raise RuntimeError(f"topics are not created: {errors}")


def create_on(peer: Peer, name: str, replicas: list[int]) -> None:
    """Create a topic of one partition with replicas on brokers, the first of which leads."""
    assignment = _Creatable.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = _Creatable(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[]
    )
    answer = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
    if answer.topics[0].error_code:
        raise RuntimeError(answer.topics[0].error_message)


def elect_preferred(peer: Peer) -> None:
    """Let the first replica of each partition lead it."""
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=60_000)
    peer.ask(request, 2)


def serving_count(ports: Mapping[int, int], names: list[str], *, full_isr: bool) -> int:
    """Return how many partitions of topics are led by a live broker that answers for them.

    The metadata are those of the first port, and each leader is asked for the end of its logs.
    """
    by_leader: dict[int, list[Any]] = {}
    peer = Peer(next(iter(ports.values())))
    for topic in peer.metadata(names).topics:
        for one in topic.partitions:
            if one.leader_id in ports and (not full_isr or len(one.isr_nodes) >= len(ports)):
                by_leader.setdefault(one.leader_id, []).append((topic.name, one.partition_index))
    peer.close()
    return sum(_served(ports[leader], led) for leader, led in by_leader.items())


def _served(port: int, partitions: list[tuple[str, int]]) -> int:
    topics: dict[str, Any] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, _Offsets(name=name, partitions=[]))
        topic.partitions.append(
            _Offsets.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
        )
    peer = Peer(port)
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=list(topics.values()))
    answer = peer.ask(request, 6)
    peer.close()
    return sum(not one.error_code for topic in answer.topics for one in topic.partitions)


def quorum_leader(port: int) -> int:
    """Return the active controller."""
    of = DescribeQuorumRequest.TopicData
    topic = of(topic_name="__cluster_metadata", partitions=[of.PartitionData(partition_index=0)])
    peer = Peer(port)
    answer = peer.ask(DescribeQuorumRequest(topics=[topic]), 1)
    peer.close()
    return int(answer.topics[0].partitions[0].leader_id)


def fenced_at(data: Path, broker_id: int) -> float:
    """Return when the controllers fenced a broker last, in seconds, from the metadata log."""
    found = 0.0
    for file in sorted((data / "__cluster_metadata-0").glob("*.log")):
        view, position = memoryview(file.read_bytes()), 0
        while position < len(view):
            try:
                batch = RecordBatch(view, position)
            except CorruptMessage:  # preallocated or cut
                break
            position += batch.size
            if not batch.is_control and any(
                _fences(bytes(record.value or b""), broker_id) for record in batch.records()
            ):
                found = batch.max_timestamp / 1000
    return found


def _fences(value: bytes, broker_id: int) -> bool:
    message = decode_record(value).message
    return (
        isinstance(message, BrokerRegistrationChangeRecord)
        and message.broker_id == broker_id
        and message.fenced == 1
    )


def wait_until(condition: Any, what: str, timeout_seconds: float = 600) -> float:
    """Call a condition until it holds and return the seconds; errors of sockets count as false."""
    began = time.monotonic()
    while time.monotonic() - began < timeout_seconds:
        try:
            if condition():
                return time.monotonic() - began
        except OSError:
            pass
        time.sleep(0.02)
    raise TimeoutError(f"{what}: not within {timeout_seconds} s")
