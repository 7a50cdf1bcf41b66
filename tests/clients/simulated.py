"""Scripted brokers and a transport without sockets, with simulated time.

Faults are scripted by request class: each request takes the next fault of its list, if any.
"""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.clients.client import ANY_NODE, Client, ConnectionKey
from ottla.clients.settings import CONSUMER, PRODUCER, ValidatedSettings, read_settings
from ottla.errors import ErrorCode
from ottla.protocol import api_keys, codec, frames
from ottla.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.apis.fetch import FetchRequest, FetchResponse
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.apis.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from ottla.protocol.apis.produce import ProduceRequest, ProduceResponse
from ottla.protocol.request_header import split_header
from ottla.purgatory.pending import Pending
from ottla.records.batch import RecordBatch, add_to_sequence
from ottla.records.batches import iterate_batches
from ottla.types import TopicPartition, Uuid
from tests.records.batch_changes import assign_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.protocol.schema import Request, Response
    from ottla.types import SendItem

NEVER_ANSWER, LOSE_REQUEST, LOSE_ANSWER = "never answer", "lose request", "lose answer"
Fault = Any  # one of the words above, an ErrorCode, or a function of the request


class Log:
    """One partition: its batches, and what a broker knows about its producers."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.start = 0
        self.leader_epoch = 0
        self.sequences: dict[int, tuple[int, int, int]] = {}  # id -> epoch, last sequence, offset

    def append(self, data: bytes) -> tuple[int, int]:
        """Check sequences as a broker does; return error code and base offset."""
        batch = RecordBatch(bytearray(data))
        batch.check_crc()
        if batch.producer_id >= 0:
            refusal = self._check(batch)
            if refusal is not None:
                return refusal
        base = self.end
        assign_offset(batch, base, self.leader_epoch)
        self.batches.append(bytes(batch.buffer))
        self.end += batch.record_count
        if batch.producer_id >= 0:
            self.sequences[batch.producer_id] = (batch.producer_epoch, batch.last_sequence, base)
        return ErrorCode.NONE, base

    def _check(self, batch: RecordBatch) -> tuple[int, int] | None:
        known = self.sequences.get(batch.producer_id)
        if known is None or batch.producer_epoch > known[0]:
            wrong = batch.base_sequence != 0
            return (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1) if wrong else None
        if batch.producer_epoch < known[0]:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        for stored in self.batches:
            old = RecordBatch(stored)
            key = (old.producer_id, old.producer_epoch, old.base_sequence, old.record_count)
            same = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
            if key == (*same, batch.record_count):
                return ErrorCode.NONE, old.base_offset
        if batch.base_sequence != add_to_sequence(known[1], 1):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return None

    def read(self, offset: int) -> bytes:
        """Return the batches from the one that holds offset on."""
        parts = [data for data in self.batches if RecordBatch(data).next_offset > offset]
        return b"".join(parts)

    @property
    def values(self) -> list[bytes | None]:
        """All record values, in order."""
        return [
            record.value
            for data in self.batches
            for batch in iterate_batches(memoryview(data))
            for record in batch.records()
        ]


class FakeCluster:
    """Brokers 1..n that answer what clients ask."""

    def __init__(self, brokers: int = 1) -> None:
        self.brokers = {n: ("broker", 9000 + n) for n in range(1, brokers + 1)}
        self.logs: dict[TopicPartition, Log] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self.faults: dict[type[Request], list[Fault]] = defaultdict(list)
        self.seen: list[tuple[int, Request]] = []
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.down: set[int] = set()
        self.serving = 0
        self.names_leaders = False
        """Whether refusals say who leads (KIP-951)."""
        self.next_producer_id = 1000
        self.handlers: dict[type[Request], Callable[[Any], Any]] = {
            ApiVersionsRequest: self.api_versions,
            MetadataRequest: self.metadata,
            ProduceRequest: self.produce,
            FetchRequest: self.fetch,
            ListOffsetsRequest: self.list_offsets,
            FindCoordinatorRequest: self.find_coordinator,
            InitProducerIdRequest: self.init_producer_id,
            OffsetCommitRequest: self.offset_commit,
            OffsetFetchRequest: self.offset_fetch,
            OffsetForLeaderEpochRequest: self.epoch_end,
        }

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic; leaders rotate over the brokers."""
        self.topic_ids[topic] = Uuid(len(self.topic_ids).to_bytes(15, "big") + b"\x09")
        for number in range(partitions):
            key = TopicPartition(topic, number)
            self.logs[key] = Log()
            self.leaders[key] = sorted(self.brokers)[number % len(self.brokers)]

    def name_of(self, topic: Any) -> str:
        """Return a topic's name, whichever way a request names it."""
        given = getattr(topic, "name", "") or getattr(topic, "topic", "")
        return given or next((n for n, i in self.topic_ids.items() if i == topic.topic_id), "")

    def refer(self, response: Any, answer: Any, key: TopicPartition) -> None:
        """Name the leader in the answer for a partition, and its address."""
        leader_id = self.leaders[key]
        if not self.names_leaders or leader_id == self.serving:
            return
        answer.current_leader = type(answer).LeaderIdAndEpoch(
            leader_id=leader_id, leader_epoch=self.logs[key].leader_epoch
        )
        host, port = self.brokers[leader_id]
        node = type(response).NodeEndpoint(node_id=leader_id, host=host, port=port)
        response.node_endpoints = [node]

    def requests(self, cls: type[Request]) -> list[Any]:
        """Return the requests of a class that arrived."""
        return [request for _, request in self.seen if isinstance(request, cls)]

    # ------------------------------------------------------------ handlers

    def api_versions(self, _request: ApiVersionsRequest) -> Response:
        """Serve everything there is."""
        keys = [
            ApiVersionsResponse.ApiVersion(
                api_key=cls.message_key,
                min_version=cls.versions.lowest,
                max_version=cls.versions.highest,
            )
            for cls in self.handlers
        ]
        return ApiVersionsResponse(error_code=0, api_keys=keys)

    def metadata(self, request: MetadataRequest) -> Response:
        """Describe brokers and topics."""
        cls = MetadataResponse.MetadataResponseTopic
        names = list(self.topic_ids) if request.topics is None else [t.name for t in request.topics]
        topics = []
        for name in names:
            assert name is not None
            parts = [
                cls.MetadataResponsePartition(
                    error_code=0,
                    partition_index=key.partition,
                    leader_id=leader,
                    leader_epoch=self.logs[key].leader_epoch,
                    replica_nodes=[leader],
                    isr_nodes=[leader],
                )
                for key, leader in self.leaders.items()
                if key.topic == name
            ]
            topics.append(
                cls(
                    error_code=0 if parts else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    name=name,
                    topic_id=self.topic_ids.get(name, Uuid()),
                    partitions=parts,
                )
            )
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=n, host=host, port=port)
            for n, (host, port) in self.brokers.items()
        ]
        return MetadataResponse(brokers=brokers, cluster_id="simulated", topics=topics)

    def init_producer_id(self, _request: InitProducerIdRequest) -> Response:
        """Return the next producer id."""
        self.next_producer_id += 1
        return InitProducerIdResponse(
            error_code=0, producer_id=self.next_producer_id, producer_epoch=0
        )

    def produce(self, request: ProduceRequest) -> Response:
        """Append."""
        cls = ProduceResponse.TopicProduceResponse
        response = ProduceResponse(responses=[])
        for topic in request.topic_data:
            name = self.name_of(topic)
            answers = []
            for part in topic.partition_data:
                assert part.records is not None
                key = TopicPartition(name, part.index)
                code, base = int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1
                if self.leaders[key] == self.serving:
                    code, base = self.logs[key].append(joined([part.records]))
                answers.append(
                    cls.PartitionProduceResponse(
                        index=part.index, error_code=code, base_offset=base
                    )
                )
                self.refer(response, answers[-1], key)
            response.responses.append(
                cls(name=name, topic_id=topic.topic_id, partition_responses=answers)
            )
        return response

    def fetch(self, request: FetchRequest) -> Response:
        """Read; without sessions, so that every request is a full one."""
        cls = FetchResponse.FetchableTopicResponse
        response = FetchResponse(responses=[])
        for topic in request.topics:
            name = self.name_of(topic)
            answers = []
            for part in topic.partitions:
                log = self.logs[TopicPartition(name, part.partition)]
                key = TopicPartition(name, part.partition)
                code = 0
                if self.leaders[key] != self.serving:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif not log.start <= part.fetch_offset <= log.end:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
                answers.append(
                    cls.PartitionData(
                        partition_index=part.partition,
                        error_code=code,
                        high_watermark=log.end,
                        last_stable_offset=log.end,
                        log_start_offset=log.start,
                        aborted_transactions=None,
                        records=b"" if code else log.read(part.fetch_offset),
                    )
                )
                self.refer(response, answers[-1], key)
            response.responses.append(cls(topic=name, topic_id=topic.topic_id, partitions=answers))
        return response

    def list_offsets(self, request: ListOffsetsRequest) -> Response:
        """Answer earliest and latest."""
        cls = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                log = self.logs[TopicPartition(topic.name, part.partition_index)]
                offset = log.start if part.timestamp == -2 else log.end
                parts.append(
                    cls.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index,
                        error_code=0,
                        offset=offset,
                        leader_epoch=log.leader_epoch,
                    )
                )
            topics.append(cls(name=topic.name, partitions=parts))
        return ListOffsetsResponse(topics=topics)

    def find_coordinator(self, request: FindCoordinatorRequest) -> Response:
        """Name broker 1."""
        host, port = self.brokers[1]
        found = FindCoordinatorResponse.Coordinator(
            key=request.coordinator_keys[0],
            node_id=1,
            host=host,
            port=port,
            error_code=0,
            error_message=None,
        )
        return FindCoordinatorResponse(coordinators=[found])

    def offset_commit(self, request: OffsetCommitRequest) -> Response:
        """Remember offsets."""
        cls = OffsetCommitResponse.OffsetCommitResponseTopic
        topics = []
        for topic in request.topics:
            name = self.name_of(topic)
            for part in topic.partitions:
                key = (request.group_id, TopicPartition(name, part.partition_index))
                self.committed[key] = part.committed_offset
            parts = [
                cls.OffsetCommitResponsePartition(
                    partition_index=part.partition_index, error_code=0
                )
                for part in topic.partitions
            ]
            topics.append(cls(name=name, topic_id=topic.topic_id, partitions=parts))
        return OffsetCommitResponse(topics=topics)

    def offset_fetch(self, request: OffsetFetchRequest) -> Response:
        """Return what is remembered."""
        group = request.groups[0]
        cls = OffsetFetchResponse.OffsetFetchResponseGroup
        topics = []
        for topic in group.topics or ():
            name = self.name_of(topic)
            parts = [
                cls.OffsetFetchResponseTopics.OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=self.committed.get(
                        (group.group_id, TopicPartition(name, index)), -1
                    ),
                    metadata="",
                    error_code=0,
                )
                for index in topic.partition_indexes
            ]
            topics.append(
                cls.OffsetFetchResponseTopics(name=name, topic_id=topic.topic_id, partitions=parts)
            )
        return OffsetFetchResponse(groups=[cls(group_id=group.group_id, topics=topics)])

    def epoch_end(self, request: OffsetForLeaderEpochRequest) -> Response:
        """Answer with the log's end for any epoch."""
        cls = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                log = self.logs[TopicPartition(topic.topic, part.partition)]
                parts.append(
                    cls.EpochEndOffset(
                        error_code=0,
                        partition=part.partition,
                        leader_epoch=part.leader_epoch,
                        end_offset=log.end,
                    )
                )
            topics.append(cls(topic=topic.topic, partitions=parts))
        return OffsetForLeaderEpochResponse(topics=topics)


def joined(parts: Iterable[Any]) -> bytes:
    """Return buffers as one."""
    return b"".join(bytes(part) for part in parts)


class Simulation:
    """Clients, their transport and a clock; `run` advances time until a condition holds."""

    def __init__(self, cluster: FakeCluster, settings: ValidatedSettings, seed: int = 1) -> None:
        self.cluster = cluster
        self.now_ms = 1_000_000
        self.settings = settings
        self.client = Client(settings, self, rng=random.Random(seed))
        self.client.now_ms = self.now_ms
        self.open_connections: dict[ConnectionKey, int] = {}
        self.opened: list[ConnectionKey] = []
        self.latency_ms = 1
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    # ------------------------------------------------------------ Transport

    def open(self, key: ConnectionKey, host: str, port: int) -> None:
        """Connect to the broker at that port, if it is up."""
        self.opened.append(key)
        node_id = port - 9000

        def arrive() -> None:
            if node_id in self.cluster.down:
                self.client.disconnected(key, f"{host}:{port}: Connection refused", self.now_ms)
            else:
                self.open_connections[key] = node_id
                self.client.connected(key, self.now_ms)

        self._later(arrive)

    def write(self, key: ConnectionKey, buffers: list[SendItem]) -> None:
        """Deliver frames to the broker."""
        data = joined(buffers)
        node_id = self.open_connections[key]
        position = 0
        while position < len(data):
            size = int.from_bytes(data[position : position + 4], "big")
            frame = data[position + 4 : position + 4 + size]
            position += 4 + size
            self._later(partial(self._serve, key, node_id, frame))

    def close(self, key: ConnectionKey) -> None:
        """Drop a connection."""
        self.open_connections.pop(key, None)

    def wake(self) -> None:
        """Do nothing: `run` polls at every step."""

    # ------------------------------------------------------------ brokers

    def _later(self, action: Callable[[], None], delay_ms: int | None = None) -> None:
        self._count += 1
        delay = self.latency_ms if delay_ms is None else delay_ms
        self._events.append((self.now_ms + delay, self._count, action))

    def _serve(self, key: ConnectionKey, node_id: int, frame: bytes) -> None:
        if self.open_connections.get(key) != node_id:
            return
        api_key, version, correlation_id, _, reader = split_header(memoryview(frame))
        cls = api_keys.request_class(api_key)
        request, _ = codec.decode_at(cls, version, reader.source, reader.position)
        self.cluster.seen.append((node_id, request))
        faults = self.cluster.faults[cls]
        fault = faults.pop(0) if faults else None
        if fault == LOSE_REQUEST or node_id in self.cluster.down:
            self.drop(key)
            return
        self.cluster.serving = node_id
        response = fault(request) if callable(fault) else self.cluster.handlers[cls](request)
        if fault == LOSE_ANSWER:
            self.drop(key)
            return
        silent = isinstance(request, ProduceRequest) and request.acks == 0
        if fault == NEVER_ANSWER or silent:
            return

        def answer(done: Pending[Any]) -> None:
            parts = frames.encode_response(correlation_id, api_key, version, done.value)
            self._later(partial(self._deliver, key, node_id, joined(parts)[4:]))

        # A handler that has to wait for others returns a Pending.
        (response if isinstance(response, Pending) else Pending.of(response)).on_done(answer)

    def _deliver(self, key: ConnectionKey, node_id: int, frame: bytes) -> None:
        if self.open_connections.get(key) == node_id:
            self.client.received(key, memoryview(frame), self.now_ms)

    def drop(self, key: ConnectionKey) -> None:
        """Cut a connection from the broker's side."""
        if self.open_connections.pop(key, None) is not None:
            self.client.disconnected(key, "the broker closed the connection", self.now_ms)

    def kill(self, node_id: int) -> None:
        """Take a broker down with its connections."""
        self.cluster.down.add(node_id)
        for key, node in list(self.open_connections.items()):
            if node == node_id:
                self.drop(key)

    # ------------------------------------------------------------ time

    def run(self, until: Callable[[], Any], limit_ms: int = 60_000) -> None:
        """Advance time until a condition holds; AssertionError after limit_ms."""
        end_ms = self.now_ms + limit_ms
        while not until():
            assert self.now_ms < end_ms, f"not so within {limit_ms} ms"
            self.step(end_ms)

    def run_for(self, duration_ms: int) -> None:
        """Advance time."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.step(end_ms)

    def step(self, end_ms: int) -> None:
        """Poll, then jump to the next event or deadline."""
        self.client.poll(self.now_ms)
        deadline_ms = self.client.next_deadline_ms()
        times = [when for when, _, _ in self._events]
        if deadline_ms is not None:
            times.append(max(deadline_ms, self.now_ms + 1))
        self.now_ms = min([end_ms, *times])
        due = sorted((e for e in self._events if e[0] <= self.now_ms), key=lambda e: e[:2])
        self._events = [e for e in self._events if e[0] > self.now_ms]
        for _, _, action in due:
            action()


def run_together(
    simulations: list[Simulation], until: Callable[[], Any], limit_ms: int = 60_000
) -> None:
    """Let time pass for several clients of one cluster, in lockstep of a millisecond."""
    now_ms = max(simulation.now_ms for simulation in simulations)
    end_ms = now_ms + limit_ms
    while not until():
        assert now_ms < end_ms, f"not so within {limit_ms} ms"
        now_ms += 1
        for simulation in simulations:
            while simulation.now_ms < now_ms:
                simulation.step(now_ms)


def producer_settings(**values: Any) -> ValidatedSettings:
    """Return producer settings that point at the first simulated broker."""
    return read_settings(PRODUCER, None, {"bootstrap_servers": "broker:9001", **values})


def consumer_settings(**values: Any) -> ValidatedSettings:
    """Return consumer settings that point at the first simulated broker."""
    return read_settings(CONSUMER, None, {"bootstrap_servers": "broker:9001", **values})


__all__ = ["ANY_NODE", "FakeCluster", "Simulation", "consumer_settings", "producer_settings"]
