"""Reports to the controller the log directory of each replica of this broker (KIP-858).

At most one request is in flight; later reports are sent with the next one. Refused or unanswered
ones are retried with an increasing backoff, as long as this broker has the replica.

Kafka: org.apache.kafka.server.AssignmentsManager.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import partition_record_version
from ottla.protocol.apis.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.purgatory.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.metadata.image.image import MetadataImage
    from ottla.purgatory.pending import Pending
    from ottla.types import Uuid

log = logging.getLogger("ottla.replication")
MAX_PARTITIONS: Final = 2250
"""In one request."""
_DIRECTORIES_FROM: Final = 1
_BACKOFF: Final = Backoff(100, 10_000)
"""As in Kafka's AssignmentsManager, without jitter: a broker has one request in flight."""
_Directory = AssignReplicasToDirsRequest.DirectoryData
_Topic = _Directory.TopicData
_Partition = _Topic.PartitionData
Key: TypeAlias = "tuple[Uuid, int]"


class DirectoryAssignments:
    """Sends AssignReplicasToDirs for one broker."""

    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        *,
        broker_epoch: Callable[[], int],
        send: Callable[[AssignReplicasToDirsRequest], Pending[Any]],
        call_later: Callable[[int, Callable[[], None]], object],
    ) -> None:
        """Take the applied image; call_later(delay_ms, callback) calls back after the delay."""
        self._node_id = node_id
        self._image = image
        self._broker_epoch = broker_epoch
        self._send = send
        self._call_later = call_later
        self._waiting: dict[Key, Uuid] = {}
        self._sent: dict[Key, Uuid] = {}
        self._failures = 0
        self._is_backing_off = False
        self._on_accepted: dict[Key, tuple[Uuid, Callable[[], None]]] = {}

    @property
    def is_recorded(self) -> bool:
        """Whether the cluster's metadata.version records directories."""
        return partition_record_version(self._image.features.levels) >= _DIRECTORIES_FROM

    def placed(
        self,
        topic_id: Uuid,
        index: int,
        directory_id: Uuid,
        on_accepted: Callable[[], None] | None = None,
    ) -> None:
        """Report that a replica lies in a directory; `wake` sends it.

        on_accepted() is called once the controller has accepted this directory, unless another
        one is reported first.
        """
        key = topic_id, index
        self._on_accepted.pop(key, None)
        if on_accepted is not None:
            self._on_accepted[key] = directory_id, on_accepted
        if key in self._waiting or self._sent.get(key) != directory_id:
            self._waiting[key] = directory_id

    def wake(self) -> None:
        """Send waiting reports, unless a request is in flight or a retry is due later.

        Nothing is sent before the cluster's metadata.version records directories.
        """
        if self._sent or self._is_backing_off or not self._waiting:
            return
        if not self.is_recorded:
            return
        for key in [waiting for waiting in self._waiting if not self._is_ours(*waiting)]:
            del self._waiting[key]
            self._on_accepted.pop(key, None)
        self._sent = dict(islice(self._waiting.items(), MAX_PARTITIONS))
        for key in self._sent:
            del self._waiting[key]
        if self._sent:
            self._send(self._request()).on_done(self._answered)

    def stalls(self) -> Iterator[str]:
        """Yield what waits between two turns although nothing that is to come sends it."""
        is_open = self.is_recorded and not self._sent and not self._is_backing_off
        if self._waiting and is_open:
            yield f"the directories of {len(self._waiting)} replicas are not reported"

    def _is_ours(self, topic_id: Uuid, index: int) -> bool:
        """Whether the partition exists and has a replica on this broker."""
        topic = self._image.topics.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        return partition is not None and self._node_id in partition.replicas

    def _request(self) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, list[int]]] = {}
        for (topic_id, index), directory_id in self._sent.items():
            directories.setdefault(directory_id, {}).setdefault(topic_id, []).append(index)
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                _Directory(
                    id=directory_id,
                    topics=[
                        _Topic(
                            topic_id=topic_id,
                            partitions=[_Partition(partition_index=index) for index in indexes],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )

    def _answered(self, done: Pending[Any]) -> None:
        sent, self._sent = self._sent, {}
        code = _code_of(done)
        if code is ErrorCode.NONE:
            assigned = _assigned(done.value)
            failed = {key: one for key, one in sent.items() if key not in assigned}
        else:
            failed = sent
        self._notify_accepted({key: one for key, one in sent.items() if key not in failed})
        if not failed:
            self._failures = 0
            self.wake()
            return
        self._failures += 1
        backoff_ms = _BACKOFF.after(self._failures)
        self._waiting = failed | self._waiting
        self._is_backing_off = True
        text = "AssignReplicasToDirs is sent again for %d partitions in %d ms: %s"
        log.info(
            text, len(failed), backoff_ms, code.name, extra={"event": "directory.not_assigned"}
        )
        self._call_later(backoff_ms, self._retry)

    def _notify_accepted(self, accepted: dict[Key, Uuid]) -> None:
        for key, directory_id in accepted.items():
            expected = self._on_accepted.get(key)
            if expected is not None and expected[0] == directory_id:
                del self._on_accepted[key]
                expected[1]()

    def _retry(self) -> None:
        self._is_backing_off = False
        self.wake()


def _code_of(done: Pending[Any]) -> ErrorCode:
    """Return why a request as a whole failed."""
    if done.error is None:
        return ErrorCode(done.value.error_code)
    if isinstance(done.error, KafkaError):
        return done.error.code
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _assigned(response: Any) -> set[Key]:
    return {
        (topic.topic_id, partition.partition_index)
        for directory in response.directories
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.error_code
    }
