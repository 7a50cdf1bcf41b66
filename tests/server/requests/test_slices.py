"""Requests about thousands of partitions: no turn of the loop handles more than a slice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.purgatory.work import MAX_STEPS, Worker
from ottla.security.acl import Operation, PatternType, Permission, ResourceType
from ottla.server.handlers import acls, offsets, replicas
from ottla.server.requests.api import served_apis
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 2000
_Offsets = ListOffsetsRequest.ListOffsetsTopic
_Epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
EVERY_ENTRY = DescribeAclsRequest(
    resource_type_filter=ResourceType.TOPIC,
    resource_name_filter=None,
    pattern_type_filter=PatternType.ANY,
    principal_filter=None,
    host_filter=None,
    operation=Operation.ANY,
    permission_type=Permission.ANY,
)


class Bed:
    """A broker with many partitions; turns of its loop that are taken one by one."""

    def __init__(self) -> None:
        self.turns: list[Callable[[], None]] = []
        self.calls: list[int] = []
        self._count = 0
        directory = SimpleNamespace(total_space=lambda: 2, free_space=lambda: 1)
        log_dir = SimpleNamespace(
            path="/d", is_online=True, is_short_of_space=False, directory=directory
        )
        logs = [_Log(self, index) for index in range(COUNT)]
        self.ctx: Any = SimpleNamespace(
            api_version=10,
            client="10.0.0.1",
            broker=SimpleNamespace(
                replicas=SimpleNamespace(get=self._get, find=lambda *_name: None),
                worker=Worker(self.turns.append),
                remote_reader=None,
                logs=SimpleNamespace(
                    directories=[log_dir],
                    table=SimpleNamespace(logs_in=lambda _dir: logs),
                    cordoned=frozenset(),
                ),
            ),
        )

    def count(self) -> None:
        """Count the work for one partition."""
        self._count += 1

    def _get(self, _topic: str, _index: int) -> Any:
        self.count()
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def finish(self, answer: Any) -> Any:
        """Take all turns; return the response."""
        while True:
            self.calls.append(self._count)
            self._count = 0
            if not self.turns:
                return answer.value
            self.turns.pop()()


class _Log:
    """A log whose size is counted when it is read."""

    is_future = False

    def __init__(self, bed: Bed, index: int) -> None:
        self._bed = bed
        self.topic_partition = TopicPartition("t", index)

    @property
    def size_bytes(self) -> int:
        """The index, as a size that differs between logs."""
        self._bed.count()
        return self.topic_partition.partition


def test_offsets_are_listed_in_slices() -> None:
    """In the order of the request."""
    bed = Bed()
    partitions = [
        _Offsets.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(COUNT)
    ]
    topics = [_Offsets(name="t", partitions=partitions)]
    answer = offsets.list_offsets(bed.ctx, ListOffsetsRequest(replica_id=-1, topics=topics))
    (topic,) = bed.finish(answer).topics
    assert [one.partition_index for one in topic.partitions] == list(range(COUNT))
    assert max(bed.calls) <= MAX_STEPS < sum(bed.calls)


def test_offsets_by_time_are_listed_in_slices() -> None:
    """Also after the reads of workers."""
    bed = Bed()
    partitions = [
        _Offsets.ListOffsetsPartition(partition_index=index, timestamp=5) for index in range(COUNT)
    ]
    topics = [_Offsets(name="t", partitions=partitions)]
    answer = offsets.list_offsets(bed.ctx, ListOffsetsRequest(replica_id=-1, topics=topics))
    (topic,) = bed.finish(answer).topics
    assert len(topic.partitions) == COUNT
    assert max(bed.calls) <= MAX_STEPS < sum(bed.calls)


def test_ends_of_epochs_are_found_in_slices() -> None:
    """For truncation detection of consumers with many partitions."""
    bed = Bed()
    partitions = [
        _Epochs.OffsetForLeaderPartition(partition=index, current_leader_epoch=-1, leader_epoch=0)
        for index in range(COUNT)
    ]
    topics = [_Epochs(topic="t", partitions=partitions)]
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    (topic,) = bed.finish(offsets.offset_for_leader_epoch(bed.ctx, request)).topics
    assert [one.partition for one in topic.partitions] == list(range(COUNT))
    assert max(bed.calls) <= MAX_STEPS < sum(bed.calls)


def test_log_directories_are_described_in_slices() -> None:
    """A directory with many partitions, as monitoring requests it."""
    bed = Bed()
    answer = replicas.describe_log_dirs(bed.ctx, DescribeLogDirsRequest(topics=None))
    (result,) = bed.finish(answer).results
    assert [one.partition_size for one in result.topics[0].partitions] == list(range(COUNT))
    assert max(bed.calls) <= MAX_STEPS < sum(bed.calls)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("topic_count", [1, 3, 750])
def test_access_control_entries_are_described_in_slices(
    version: int, topic_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster may have 100,000; one that is removed in between is described still.

    They are encoded in slices, too, and the last turn only joins what was encoded.
    """
    bed, count = Bed(), 750
    bed.ctx.api_version = version
    records = {number: _Entry(bed, number, number % topic_count) for number in range(count)}
    bed.ctx.broker.authorizer = "any"
    bed.ctx.broker.image = SimpleNamespace(acls=SimpleNamespace(by_id=records))
    answer = acls.describe_acls(bed.ctx, EVERY_ENTRY)
    del records[0]
    encoded = bed.finish(answer)
    assert max(bed.calls) <= MAX_STEPS < sum(bed.calls)
    sizes, encode_into = [], codec.encode_into

    def count_encoded(message: Any, at_version: int, out: Any) -> None:
        sizes.append(sum(len(one.acls) for one in message.resources))
        encode_into(message, at_version, out)

    form = served_apis()[ApiKey.DESCRIBE_ACLS].form
    with monkeypatch.context() as patch:
        patch.setattr(codec, "encode_into", count_encoded)
        frame: Any = form.write(encoded, 7, version, 20)
    assert sum(sizes) == 0
    header_size = 9 if version >= 2 else 8
    response = codec.decode(DescribeAclsResponse, version, bytes(frame)[header_size:])
    assert [one.resource_name for one in response.resources] == [
        f"t{number}" for number in range(topic_count)
    ]
    assert response.throttle_time_ms == 20
    assert [[one.principal for one in topic.acls] for topic in response.resources] == [
        [f"User:{number}" for number in range(topic, count, topic_count)]
        for topic in range(topic_count)
    ]


class _Entry:
    """A record of an entry that is counted when it is read."""

    resource_type = ResourceType.TOPIC
    pattern_type = PatternType.LITERAL
    host = "*"
    operation = Operation.READ
    permission_type = Permission.ALLOW

    def __init__(self, bed: Bed, number: int, topic: int) -> None:
        self._bed = bed
        self._number = number
        self.resource_name = f"t{topic}"

    @property
    def principal(self) -> str:
        """A user of its own."""
        self._bed.count()
        return f"User:{self._number}"
