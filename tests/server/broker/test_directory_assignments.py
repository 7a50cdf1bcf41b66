"""What a broker tells the controller about the directories of its replicas, and when."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import MetadataImage
from ottla.metadata.partition import UNASSIGNED_DIRECTORY, PartitionRegistration, TopicImage
from ottla.protocol.apis.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.purgatory.pending import Pending
from ottla.server.broker.directory_assignments import MAX_PARTITIONS, DirectoryAssignments
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = Uuid(b"topic".ljust(16, b"."))
FIRST = Uuid(b"first".ljust(16, b"."))
SECOND = Uuid(b"second".ljust(16, b"."))
_Directory = AssignReplicasToDirsResponse.DirectoryData
_Topic = _Directory.TopicData


class Sender:
    """Broker 1 with partitions of one topic; the test answers its requests by hand."""

    def __init__(self, partitions: int = 3) -> None:
        self.sent: list[AssignReplicasToDirsRequest] = []
        self.pauses: list[tuple[int, Callable[[], None]]] = []
        self._open: list[Pending[Any]] = []
        self.image = MetadataImage()
        self.image.features.levels[METADATA_VERSION] = 30
        one = PartitionRegistration((1,), (UNASSIGNED_DIRECTORY,), (1,), 1, 0, 0)
        self.topic = TopicImage("t", TOPIC)
        self.topic.partitions.update(dict.fromkeys(range(partitions), one))
        self.image.topics.by_id[TOPIC] = self.topic
        self.assignments = DirectoryAssignments(
            1,
            self.image,
            broker_epoch=lambda: 7,
            send=self._send,
            call_later=lambda pause_ms, callback: self.pauses.append((pause_ms, callback)),
        )

    def _send(self, request: AssignReplicasToDirsRequest) -> Pending[Any]:
        self.sent.append(request)
        self._open.append(Pending())
        return self._open[-1]

    def place(self, *indexes: int, directory: Uuid = FIRST) -> None:
        for index in indexes:
            self.assignments.placed(TOPIC, index, directory)
        self.assignments.wake()

    def named(self, number: int = -1) -> list[tuple[Uuid, list[int]]]:
        """Return the directories of a request with their partitions."""
        return [
            (one.id, [partition.partition_index for partition in one.topics[0].partitions])
            for one in self.sent[number].directories
        ]

    def answer(self, *refused: int, code: ErrorCode = ErrorCode.NONE) -> None:
        def partition(index: int) -> AssignReplicasToDirsResponse.DirectoryData.TopicData:
            answer = _Topic.PartitionData(
                partition_index=index,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if index in refused else 0,
            )
            return _Topic(topic_id=TOPIC, partitions=[answer])

        directories = [
            _Directory(id=directory, topics=[partition(index) for index in indexes])
            for directory, indexes in self.named()
        ]
        response = AssignReplicasToDirsResponse(error_code=code, directories=directories)
        self._open.pop(0).complete(response)

    def fail(self) -> None:
        self._open.pop(0).fail(KafkaError(ErrorCode.NOT_CONTROLLER))

    def end_pause(self) -> int:
        pause_ms, callback = self.pauses.pop()
        callback()
        return pause_ms


def test_replicas_are_reported_together_by_directory() -> None:
    """With the broker's epoch; what comes meanwhile goes out with the next request."""
    sender = Sender()
    sender.assignments.placed(TOPIC, 2, SECOND)
    sender.place(0)
    assert sender.sent[0].broker_epoch == 7
    assert sender.named() == [(SECOND, [2]), (FIRST, [0])]
    sender.place(0, 1)
    assert len(sender.sent) == 1
    sender.answer()
    assert sender.named() == [(FIRST, [1])]
    sender.answer()
    assert len(sender.sent) == 2


def test_a_request_has_no_more_partitions_than_kafkas() -> None:
    """The others follow when it is answered."""
    sender = Sender(MAX_PARTITIONS + 1)
    sender.place(*range(MAX_PARTITIONS + 1))
    assert sender.named() == [(FIRST, [*range(MAX_PARTITIONS)])]
    sender.answer()
    assert sender.named() == [(FIRST, [MAX_PARTITIONS])]


def test_pauses_grow_until_the_controller_answers() -> None:
    """Nothing is sent during a pause; it lasts 10 s at most."""
    sender = Sender()
    sender.place(0)
    pauses = []
    for _ in range(9):
        sender.fail()
        sender.place(1)
        pauses.append(sender.end_pause())
    assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    assert len(sender.sent) == 10
    assert sender.named() == [(FIRST, [0, 1])]
    sender.answer(code=ErrorCode.STALE_BROKER_EPOCH)
    assert sender.end_pause() == 10_000
    sender.answer()
    sender.place(2)
    sender.fail()
    assert sender.end_pause() == 100


def test_a_partition_that_is_refused_is_sent_again_unless_it_is_gone() -> None:
    """A deleted one and one of other brokers are forgotten."""
    sender = Sender()
    sender.place(0, 1, 2)
    sender.answer(0, 1, 2)
    sender.topic.partitions.pop(0)
    sender.topic.partitions[1] = sender.topic.partitions[1]._replace(replicas=(2,))
    sender.end_pause()
    assert sender.named() == [(FIRST, [2])]
    sender.answer(2)
    sender.image.topics.by_id.clear()
    sender.end_pause()
    assert len(sender.sent) == 2


def test_a_cluster_that_records_no_directories_is_told_when_it_does() -> None:
    """A controller with an older metadata.version would refuse each request."""
    sender = Sender()
    sender.image.features.levels[METADATA_VERSION] = 10
    sender.place(0)
    assert sender.sent == []
    sender.image.features.levels[METADATA_VERSION] = 30
    sender.assignments.wake()
    assert sender.named() == [(FIRST, [0])]


def test_a_replica_that_moved_meanwhile_is_reported_where_it_lies_now() -> None:
    """Also when the request under way fails."""
    sender = Sender()
    sender.place(0)
    sender.place(0, directory=SECOND)
    sender.fail()
    sender.end_pause()
    assert sender.named() == [(SECOND, [0])]


def test_who_waits_for_a_directory_is_called_once_it_is_accepted() -> None:
    """Not when the replica is reported in another one meanwhile, or is refused."""
    sender, accepted = Sender(), list[int]()
    for index in range(3):
        sender.assignments.placed(TOPIC, index, FIRST, partial(accepted.append, index))
    sender.assignments.wake()
    sender.place(1, directory=SECOND)
    assert accepted == []
    sender.answer(2)
    assert accepted == [0]
    sender.end_pause()
    assert sender.named() == [(FIRST, [2]), (SECOND, [1])]
    sender.answer()
    assert accepted == [0, 2]
