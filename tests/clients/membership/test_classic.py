"""Members of the classic protocol with a protocol type of their own, in groups of a real node."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from ottla.clients.blocking_runtime import BlockingRuntime
from ottla.clients.coordinator import CoordinatorLookup
from ottla.clients.membership.classic import ClassicGroupMember, GroupMemberSettings, GroupState
from ottla.clients.settings import COMMON, read_settings
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ottla.protocol.apis.join_group import JoinGroupResponse
    from ottla.testing.kafka import Kafka
    from ottla.types import Buffer

SETTINGS = GroupMemberSettings(
    session_timeout_ms=6000,
    heartbeat_interval_ms=50,
    rebalance_timeout_ms=10_000,
    request_timeout_ms=5000,
    retry_backoff_ms=50,
)
TASKS = ("a", "b", "c", "d")


class Worker(ClassicGroupMember):
    """Divides letters: a join states the worker's name, an assignment is the worker's letters."""

    protocol_type = "letters"

    def __init__(self, runtime: BlockingRuntime, name: str, group: str) -> None:
        super().__init__(SETTINGS, runtime.client, CoordinatorLookup(runtime.client, group))
        self.runtime, self.name = runtime, name
        self.letters = ""
        self.stated: list[bytes] = []
        self.losses: list[bool] = []
        self._next = ""
        runtime.client.register(self)

    def _join_metadata(self) -> Mapping[str, bytes]:
        return {"round-robin": self.name.encode(), "other": b""}

    def _assign(self, response: JoinGroupResponse) -> Pending[Mapping[str, bytes]]:
        assert self.protocol_name == "round-robin"
        names = sorted((bytes(member.metadata), member.member_id) for member in response.members)
        self.stated = [name for name, _ in names]
        parts = {
            member_id: "".join(TASKS[index :: len(names)]).encode()
            for index, (_, member_id) in enumerate(names)
        }
        return Pending.of(parts)

    def _take_assignment(self, data: Buffer) -> None:
        text = bytes(data).decode()
        if not set(text) <= set(TASKS):
            raise CorruptMessage(text)
        self._next = text

    def _ended(self, *, lost: bool) -> None:
        self.losses.append(lost)
        self.letters = ""

    def turn(self) -> None:
        """Do what an owner does: stop work before a join, begin it after an assignment."""
        now_ms = self.runtime.now_ms()
        self.polled(now_ms)
        if self.state is GroupState.ASSIGNED:
            self.letters = self._next
            self.accept()
        elif self.wants_to_join:
            self.letters = ""
            self.may_join()
        self.runtime.run_turn(now_ms + 5)


class Group:
    """The workers of a group."""

    def __init__(self, bootstrap: str, stack: ExitStack, name: str) -> None:
        self._bootstrap, self._stack, self._name = bootstrap, stack, name

    def worker(self, name: str) -> Worker:
        """Start a worker."""
        settings = read_settings(COMMON, {"bootstrap.servers": self._bootstrap}, {})
        settings.client_id = name
        runtime = self._stack.enter_context(BlockingRuntime(settings))
        return Worker(runtime, name, self._name)


@pytest.fixture
def group(kafka: Kafka) -> Iterator[Group]:
    """Return a group without members."""
    with ExitStack() as stack:
        yield Group(kafka.bootstrap, stack, kafka.group())


def run(workers: Sequence[Worker], until: Callable[[], bool]) -> None:
    """Run workers in turn until a condition holds."""
    end_ms = workers[0].runtime.now_ms() + 20_000
    while not until():
        assert workers[0].runtime.now_ms() < end_ms, [worker.state for worker in workers]
        for worker in workers:
            worker.turn()


def letters(workers: Sequence[Worker]) -> list[str]:
    """Return the letters of stable workers."""
    return [worker.letters for worker in workers if worker.state is GroupState.STABLE]


def test_workers_of_any_protocol_type_divide_their_work(group: Group, kafka: Kafka) -> None:
    """The leader sees the metadata of all; a worker that joins or leaves has it divided again."""
    first = group.worker("one")
    run([first], lambda: letters([first]) == ["abcd"])
    assert first.is_leader
    (described,) = kafka.admin.describe_groups([first.coordinator.key]).values()
    assert described.protocol_type == "letters"  # type: ignore[union-attr] # no error
    second = group.worker("two")
    both = [first, second]
    run(both, lambda: letters(both) == ["ac", "bd"])
    assert first.stated == [b"one", b"two"]
    leaving = second.leave("it ends")
    second.stop()
    assert leaving is not None
    second.runtime.wait_for(leaving)
    assert second.losses == [False]
    run([first], lambda: letters([first]) == ["abcd"])


def test_a_consumer_cannot_join_a_group_of_another_protocol_type(
    group: Group, kafka: Kafka
) -> None:
    """And a worker whose member id the broker has forgotten joins as a new member."""
    worker = group.worker("one")
    run([worker], lambda: letters([worker]) == ["abcd"])
    with kafka.consumer(group=worker.coordinator.key) as consumer:
        consumer.subscribe(["any"])
        with pytest.raises(KafkaError) as raised:
            consumer.poll(10)
        assert raised.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    old_id = worker.member_id
    kafka.admin.remove_group_members(worker.coordinator.key)
    run([worker], lambda: worker.member_id != old_id and letters([worker]) == ["abcd"])
    assert worker.losses == [True]
