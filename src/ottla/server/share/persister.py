"""Sends requests about the state of share partitions to their share coordinators.

The coordinator of a share partition is the leader of a partition of `__share_group_state`; this
broker's own needs no connection. Retriable errors are retried a few times.

Kafka: org.apache.kafka.server.share.persister.{DefaultStatePersister, PersisterStateManager}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.coordinator.share.state import ShareKey
from ottla.errors import ErrorCode
from ottla.protocol.api_keys import response_class
from ottla.protocol.apis.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.protocol.apis.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.apis.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateRequest
from ottla.purgatory.backoff import Backoff
from ottla.purgatory.pending import Pending
from ottla.server.broker.topic_auto_creation import SHARE_STATE_TOPIC
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.clock import Clock
    from ottla.coordinator.share.coordinator import ShareCoordinator
    from ottla.protocol.schema import Request
    from ottla.purgatory.timing_wheel import TimerTask, TimingWheel
    from ottla.server.broker.broker_channel import BrokerChannel
    from ottla.types import Uuid

_MAX_ATTEMPTS: Final = 5
_BACKOFF: Final = Backoff(1000, 30_000)
"""As in Kafka's PersisterStateManager, without its jitter: a call has one broker to itself."""
_RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
_NO_LEADER: Final = -1


class _Api(NamedTuple):
    """The message classes of an API of the share coordinator."""

    request: type[Any]
    topic: type[Any]
    response: type[Any]
    result: type[Any]
    unknown: dict[str, Any]
    """Fields of a result that has an error."""


def _api(request: type[Request], name: str, **unknown: object) -> _Api:
    response = response_class(request.message_key)
    topic, result = getattr(request, f"{name}Data"), getattr(response, f"{name}Result")
    return _Api(request, topic, response, result, unknown)


_INITIALIZE: Final = _api(InitializeShareGroupStateRequest, "InitializeState")
_READ: Final = _api(
    ReadShareGroupStateRequest, "ReadState", state_epoch=0, start_offset=0, state_batches=[]
)
_WRITE: Final = _api(WriteShareGroupStateRequest, "WriteState")
_DELETE: Final = _api(DeleteShareGroupStateRequest, "DeleteState")
_SUMMARY: Final = _api(
    ReadShareGroupStateSummaryRequest,
    "ReadStateSummary",
    state_epoch=0,
    leader_epoch=0,
    start_offset=0,
)


class StatePersister:
    """One method for each API of the share coordinator; none fails as a whole.

    partition_for says which partition of the state topic owns a share partition; create_topic
    begins to create that topic; leads says whether this node coordinates a group.
    """

    def __init__(
        self,
        channel: BrokerChannel,
        timer: TimingWheel,
        clock: Clock,
        partition_for: Callable[[str], int],
        create_topic: Callable[[], object],
    ) -> None:
        self.channel = channel
        self.timer = timer
        self.clock = clock
        self.partition_for = partition_for
        self.create_topic = create_topic
        self.calls: dict[_Call, None] = {}
        """What is not answered yet."""
        self.leads: Callable[[str], bool] = lambda _group_id: True
        self._making: dict[ShareKey, _Call] = {}
        """By share partition: the newest call that begins or deletes its state."""

    def initialize(self, request: InitializeShareGroupStateRequest) -> Pending[Any]:
        """Begin the states of share partitions."""
        return self._in_order(_Call(self, _INITIALIZE, request))

    def read(self, request: ReadShareGroupStateRequest) -> Pending[Any]:
        """Return states to the leaders of partitions."""
        return _Call(self, _READ, request).begin()

    def write(self, request: WriteShareGroupStateRequest) -> Pending[Any]:
        """Apply changes of the leaders of partitions."""
        return _Call(self, _WRITE, request).begin()

    def delete(self, request: DeleteShareGroupStateRequest) -> Pending[Any]:
        """Delete the states of share partitions."""
        return self._in_order(_Call(self, _DELETE, request))

    def read_summary(self, request: ReadShareGroupStateSummaryRequest) -> Pending[Any]:
        """Return start offsets and counts of completed deliveries."""
        return _Call(self, _SUMMARY, request).begin()

    def _in_order(self, call: _Call) -> Pending[Any]:
        """Begin and delete the states of a share partition one after another, as was asked.

        A deletion that is repeated after a refusal would else remove the state that was begun
        meanwhile: its group takes it as begun, and no member would get the records.
        """
        earlier = {self._making[key]: None for key in call.keys if key in self._making}
        self._making.update(dict.fromkeys(call.keys, call))

        def ended(_done: Pending[Any]) -> None:
            for key in call.keys:
                if self._making.get(key) is call:
                    del self._making[key]

        call.answer.on_done(ended)
        call.is_of_group = True
        return call.begin_after(earlier)

    def stalls(self) -> Iterator[str]:
        """Yield calls for which neither an answer nor another attempt is to come."""
        for call in self.calls:
            if not call.is_awaited:
                yield f"{call!r} is not answered"

    def serve_locally(self, coordinator: ShareCoordinator) -> None:
        """Let this broker's coordinator answer its own requests."""
        for api, serve in (
            (_INITIALIZE, coordinator.initialize),
            (_READ, coordinator.read),
            (_WRITE, coordinator.write),
            (_DELETE, coordinator.delete),
            (_SUMMARY, coordinator.read_summary),
        ):
            answer: Callable[[Any], Pending[Any]] = serve
            self.channel.answer_locally(api.request, answer)

    def coordinator_of(self, key: ShareKey) -> int:
        """Return the broker that coordinates a share partition, -1 for none."""
        partition = TopicPartition(SHARE_STATE_TOPIC, self.partition_for(str(key)))
        leader = self.channel.leader_of(partition)
        if leader is None:
            self.create_topic()
        return _NO_LEADER if leader is None else leader


class _Call:
    """A request whose parts are sent to several coordinators."""

    def __init__(self, persister: StatePersister, api: _Api, request: Any) -> None:
        self._persister = persister
        self._api = api
        self._group_id: str = request.group_id
        self._left = {
            ShareKey(request.group_id, topic.topic_id, part.partition): part
            for topic in request.topics
            for part in topic.partitions
        }
        self.keys = list(self._left)
        self._earlier: list[Pending[Any]] = []
        """The answers to calls that have to end first."""
        self._results: dict[ShareKey, Any] = {}
        self._attempt = 0
        self._open = 0
        self._retry: TimerTask | None = None
        self.is_of_group = False
        """Whether it is the call of a group's coordinator, which another node may become."""
        self.answer: Pending[Any] = Pending()
        persister.calls[self] = None

    @property
    def is_awaited(self) -> bool:
        """Whether an answer, the time of the next attempt or the end of another call is to come."""
        is_queued = any(not one.done for one in self._earlier)
        return is_queued or self._open > 0 or (self._retry is not None and self._retry.is_waiting)

    def begin_after(self, calls: Iterable[_Call]) -> Pending[Any]:
        """Begin once other calls have ended."""
        self._earlier = [call.answer for call in calls]
        if not self._earlier:
            return self.begin()

        def begin_last(_done: Pending[Any]) -> None:
            if not self._attempt and all(one.done for one in self._earlier):
                self.begin()

        for one in self._earlier:
            one.on_done(begin_last)
        return self.answer

    def begin(self) -> Pending[Any]:
        """Send the remaining share partitions to their coordinators.

        Not once another node coordinates the group: its calls are not in order with these, and a
        deletion that comes late would remove a state that was begun there.
        """
        self._attempt += 1
        if self.is_of_group and not self._persister.leads(self._group_id):
            self._set_failed(self._left, ErrorCode.NOT_COORDINATOR)
            self._left = {}
            self._open = 1
            self._part_done()
            return self.answer
        by_broker: dict[int, dict[ShareKey, Any]] = {}
        for key, part in self._left.items():
            by_broker.setdefault(self._persister.coordinator_of(key), {})[key] = part
        self._open = len(by_broker) + 1
        for broker_id, parts in by_broker.items():
            if broker_id == _NO_LEADER:
                self._failed(parts)
            else:
                self._send(broker_id, parts)
        self._part_done()
        return self.answer

    def _again(self, _now_ms: int) -> None:
        self.begin()

    def _send(self, broker_id: int, parts: dict[ShareKey, Any]) -> None:
        topics: dict[Uuid, list[Any]] = {}
        for key, part in parts.items():
            topics.setdefault(key.topic_id, []).append(part)
        request: Request = self._api.request(
            group_id=self._group_id,
            topics=[
                self._api.topic(topic_id=topic_id, partitions=group)
                for topic_id, group in topics.items()
            ],
        )

        def answered(done: Pending[Any]) -> None:
            if done.error is not None:
                self._failed(parts)
            else:
                self._take(parts, done.value)

        self._persister.channel.send(broker_id, request).on_done(answered)

    def _take(self, parts: dict[ShareKey, Any], response: Any) -> None:
        """Store the results; retriable errors stay open.

        A coordinator leaves out all results of a request whose group has an empty name.
        """
        self._set_failed(parts, ErrorCode.UNKNOWN_SERVER_ERROR)
        for topic in response.results:
            for result in topic.partitions:
                key = ShareKey(self._group_id, topic.topic_id, result.partition)
                if key not in parts:
                    continue
                self._results[key] = result
        for key in parts:
            if self._results[key].error_code not in _RETRIED:
                self._left.pop(key, None)
        self._part_done()

    def _failed(self, parts: dict[ShareKey, Any]) -> None:
        self._set_failed(parts, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._part_done()

    def _set_failed(self, parts: Iterable[ShareKey], code: ErrorCode) -> None:
        for key in parts:
            self._results[key] = self._api.result.PartitionResult(
                partition=key.partition,
                error_code=int(code),
                error_message=code.text,
                **self._api.unknown,
            )

    def _part_done(self) -> None:
        self._open -= 1
        if self._open:
            return
        if self._left and self._attempt < _MAX_ATTEMPTS:
            due_ms = self._persister.clock.monotonic_ms() + _BACKOFF.after(self._attempt)
            self._retry = self._persister.timer.add(due_ms, self._again)
            return
        del self._persister.calls[self]
        results: dict[Uuid, list[Any]] = {}
        for key in self.keys:
            results.setdefault(key.topic_id, []).append(self._results[key])
        self.answer.complete(
            self._api.response(
                results=[
                    self._api.result(topic_id=topic_id, partitions=group)
                    for topic_id, group in results.items()
                ]
            )
        )
