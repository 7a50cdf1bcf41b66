"""Retries of the admin client, without a cluster.

Kafka: org.apache.kafka.clients.admin.KafkaAdminClient, .internals.AdminApiDriver.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.admin.admin import AsyncAdmin
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.create_partitions import CreatePartitionsResponse
from ottla.protocol.apis.create_topics import CreateTopicsResponse
from ottla.protocol.apis.delete_topics import DeleteTopicsResponse
from ottla.protocol.apis.list_offsets import ListOffsetsResponse
from ottla.protocol.apis.metadata import MetadataResponse
from ottla.purgatory.pending import Pending
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

OVER = ErrorCode.THROTTLING_QUOTA_EXCEEDED
PAUSE_MS = 20_000
ID = Uuid(b"0123456789abcdef")
Asked = list[list[str]]


class Scripted(AsyncAdmin):
    """Answers for the first topic asked for, and refuses the others for a quota."""

    def __init__(self) -> None:
        super().__init__(bootstrap_servers="127.0.0.1:1")
        self.requested: Asked = []
        self.pauses: list[float] = []
        self.now_ms = 0.0
        self._runtime.now_ms = lambda: int(self.now_ms)  # no time passes
        self._runtime.sleep = self._sleep  # type: ignore[method-assign]  # nor is any waited

    async def _sleep(self, duration_ms: float) -> None:
        self.pauses.append(duration_ms)
        self.now_ms += duration_ms

    async def _call(self, request: Any, **_how: Any) -> Any:
        names = [one.name or one.topic_id for one in request.topics]
        self.requested.append(names)
        codes = {name: OVER if index else ErrorCode.NONE for index, name in enumerate(names)}
        throttle_time_ms = PAUSE_MS if len(names) > 1 else 0
        kind = type(request).__name__
        if kind == "CreateTopicsRequest":
            made = CreateTopicsResponse.CreatableTopicResult
            topics = [
                made(name=name, error_code=code, error_message=None) for name, code in codes.items()
            ]
            return CreateTopicsResponse(throttle_time_ms=throttle_time_ms, topics=topics)
        if kind == "DeleteTopicsRequest":
            gone = DeleteTopicsResponse.DeletableTopicResult
            responses = [
                gone(name=None, topic_id=name, error_code=code)
                if isinstance(name, Uuid)
                else gone(name=name, error_code=code)
                for name, code in codes.items()
            ]
            return DeleteTopicsResponse(throttle_time_ms=throttle_time_ms, responses=responses)
        grown = CreatePartitionsResponse.CreatePartitionsTopicResult
        results = [grown(name=name, error_code=code) for name, code in codes.items()]
        return CreatePartitionsResponse(throttle_time_ms=throttle_time_ms, results=results)


CALLS: dict[str, Callable[..., Awaitable[dict[Any, Any]]]] = {
    "create": lambda admin, **how: admin.create_topics(["a", "b", "c"], **how),
    "delete": lambda admin, **how: admin.delete_topics(["a", "b", ID], **how),
    "grow": lambda admin, **how: admin.create_partitions({"a": 2, "b": 2, "c": 2}, **how),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_a_quota_refuses_is_asked_for_again(name: str) -> None:
    """After the broker's throttle time, and only the rejected topics."""
    last = ID if name == "delete" else "c"

    async def run(**how: Any) -> tuple[Scripted, dict[Any, Any]]:
        admin = Scripted()
        return admin, await CALLS[name](admin, **how)

    admin, outcomes = asyncio.run(run())
    assert admin.requested == [["a", "b", last], ["b", last], [last]]
    assert admin.pauses == [PAUSE_MS, PAUSE_MS]
    assert list(outcomes) == ["a", "b", last]
    assert not any(isinstance(one, KafkaError) for one in outcomes.values())
    for how in ({"retry_on_quota_violation": False}, {"timeout": PAUSE_MS / 1000}):
        admin, outcomes = asyncio.run(run(**how))
        assert admin.requested == [["a", "b", last]]
        assert not isinstance(outcomes["a"], KafkaError)
        assert [outcomes[key].code for key in ("b", last)] == [OVER, OVER]


@pytest.mark.parametrize("tries", [1, 3])
def test_a_leader_that_does_not_know_the_topic_is_asked_again(tries: int) -> None:
    """The error is retried: it is final only at the deadline."""
    place = TopicPartition("t", 0)
    answered = ListOffsetsResponse.ListOffsetsTopicResponse

    async def run() -> dict[TopicPartition, Any]:
        admin = Scripted()
        topic = MetadataResponse.MetadataResponseTopic
        part = topic.MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        admin._client.metadata.add_topics(["t"])
        admin._client.metadata.update(
            MetadataResponse(
                brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1)],
                topics=[topic(error_code=0, name="t", topic_id=ID, partitions=[part])],
            ),
            0,
        )

        async def refreshed(_deadline_ms: float) -> Any:
            return admin._client.metadata

        codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]

        def send(_node_id: int, _request: object, **_how: Any) -> Pending[Any]:
            one = answered.ListOffsetsPartitionResponse(
                partition_index=0, error_code=codes.pop(0), offset=7
            )
            return Pending.of(ListOffsetsResponse(topics=[answered(name="t", partitions=[one])]))

        admin._refresh_until = refreshed  # type: ignore[method-assign, assignment]  # no cluster
        admin._client.send = send  # type: ignore[method-assign, assignment]  # no cluster
        return await admin.list_offsets({place: -1}, timeout=0.0 if tries == 1 else 60.0)

    outcome = asyncio.run(run())[place]
    if tries == 1:
        assert isinstance(outcome, KafkaError)
        assert outcome.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        assert outcome.offset == 7
