"""Responses to Metadata that are put together from topics encoded before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.metadata.broker import BrokerRegistration, ListenerAddress
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.image import MetadataImage
from ottla.metadata.partition import PartitionRegistration
from ottla.protocol import codec
from ottla.protocol.apis.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from ottla.purgatory.pending import Pending
from ottla.purgatory.work import Worker
from ottla.server.handlers import metadata as handler
from ottla.server.handlers.metadata import metadata
from ottla.types import Node, OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

DIRECTORY = Uuid(bytes(range(50, 66)))
IDS = {"a": Uuid(bytes([1] * 16)), "b": Uuid(bytes([2] * 16))}
VERSIONS = range(14)


class Bench:
    """An image with three partitions in each of two topics, and requests on it."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.turns: list[Callable[[], None]] = []
        self.worker = Worker(self.turns.append, max_steps=4)
        self._end = 0
        for broker_id in (1, 2):
            listeners = {"PLAINTEXT": ListenerAddress("host", 9000 + broker_id, 0)}
            broker = BrokerRegistration(
                broker_id, 0, Uuid(bytes(16)), listeners, {}, None, False, False,
                log_directories=(DIRECTORY,),
            )  # fmt: skip
            self.apply(broker.to_record(), 3)
        for name, topic_id in IDS.items():
            self.apply(TopicRecord(name=name, topic_id=topic_id), 0)
            for number in range(3):
                partition = PartitionRegistration(
                    (1, 2), (DIRECTORY, DIRECTORY), (1, 2), 1 + number % 2, 5, 7
                )
                self.apply(partition.to_record(topic_id, number), 2)

    def apply(self, record: Any, version: int) -> None:
        end = OffsetAndEpoch(self._end, 0)
        self._end += 1
        self.image.apply([MessageAndVersion(record, version)], end, MetadataDelta())

    def send(self, version: int, topics: list[Any] | None = None, **fields: Any) -> Any:
        broker = SimpleNamespace(
            image=self.image,
            cluster_id="x",
            nodes=lambda _listener: [Node(1, "host", 9001, None)],
            metadata=SimpleNamespace(
                any_controller_id=lambda: 1, config=SimpleNamespace(auto_create_topics_enable=False)
            ),
            worker=self.worker,
            topic_name=lambda _id: None,
        )
        ctx: Any = SimpleNamespace(
            broker=broker,
            api_version=version,
            listener_name="PLAINTEXT",
            authorize=lambda *_right: True,
            is_allowed=lambda *_right: True,
            operations=lambda kind, _name: {2: 0b110111111000, 4: 0b1111110100000}[kind],
        )
        return metadata(ctx, MetadataRequest(topics=topics, **fields))

    def ask(self, version: int, topics: list[Any] | None = None, **fields: Any) -> bytes:
        """Return the body of the response."""
        got = self.send(version, topics, **fields)
        while self.turns:
            self.turns.pop(0)()
        encoded = got.value if isinstance(got, Pending) else got
        frame: bytes = handler.FORM.write(encoded, 1, version, 0)  # type: ignore[assignment]
        return frame[9 if version >= 9 else 8 :]

    def decoded(self, version: int) -> MetadataResponse:
        return codec.decode(MetadataResponse, version, self.ask(version))


@pytest.mark.parametrize("slices", [1, 2, 100])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_the_whole_message(
    version: int, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any version, encoded in one turn or in several, new or kept."""
    monkeypatch.setattr(handler, "PARTITIONS_AT_ONCE", slices)
    bench = Bench()
    fields: dict[str, Any] = {"include_topic_authorized_operations": True} if version >= 8 else {}
    first = bench.ask(version, **fields)
    response = codec.decode(MetadataResponse, version, first)
    assert codec.to_bytes(response, version) == first == bench.ask(version, **fields)
    assert [topic.name for topic in response.topics] == ["a", "b"]
    for topic in response.topics:
        assert [one.partition_index for one in topic.partitions] == [0, 1, 2]
        assert [one.leader_id for one in topic.partitions] == [1, 2, 1]
        assert [one.isr_nodes for one in topic.partitions] == [[1, 2]] * 3


def test_missing_topics_follow_those_that_exist() -> None:
    """Their entries are encoded with each response."""
    requested = MetadataRequest.MetadataRequestTopic
    body = Bench().ask(9, [requested(name="none"), requested(name="b")])
    response = codec.decode(MetadataResponse, 9, body)
    assert [(one.name, one.error_code) for one in response.topics] == [("b", 0), ("none", 3)]
    assert codec.to_bytes(response, 9) == body


def test_a_turn_encodes_a_limited_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The response comes later; what is kept is sent at once."""
    monkeypatch.setattr(handler, "PARTITIONS_AT_ONCE", 2)
    bench = Bench()
    pending = bench.send(12)
    counts = []
    while bench.turns:
        counts.append(len(bench.turns))
        bench.turns.pop(0)()
    assert counts == [1, 1]
    assert isinstance(pending, Pending)
    assert pending.done
    assert not isinstance(bench.send(12), Pending)


def test_only_changed_topics_are_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a partition affects its topic, a change of a broker all topics."""
    bench = Bench()
    bench.ask(12)
    described: list[int] = []
    describe = handler._describe

    def counted(*arguments: Any) -> Any:
        described.append(arguments[1])
        return describe(*arguments)

    monkeypatch.setattr(handler, "_describe", counted)
    bench.ask(12)
    assert described == []
    change = PartitionChangeRecord(topic_id=IDS["a"], partition_id=1, leader=1)
    bench.apply(change, 2)
    response = bench.decoded(12)
    assert described == [0, 1, 2]
    assert [one.leader_id for one in response.topics[0].partitions] == [1, 1, 1]
    bench.apply(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=0, fenced=1), 1)
    response = bench.decoded(12)
    assert len(described) == 9
    assert [one.offline_replicas for one in response.topics[1].partitions] == [[2]] * 3


def test_a_change_between_two_turns_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next response has it."""
    monkeypatch.setattr(handler, "PARTITIONS_AT_ONCE", 2)
    bench = Bench()
    bench.send(12)
    bench.apply(PartitionChangeRecord(topic_id=IDS["a"], partition_id=0, leader=2), 2)
    while bench.turns:
        bench.turns.pop(0)()
    assert bench.decoded(12).topics[0].partitions[0].leader_id == 2
