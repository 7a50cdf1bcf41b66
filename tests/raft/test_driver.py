"""Reads and writes of snapshots by the quorum's driver when no file descriptor is left."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.purgatory.pending import Pending
from ottla.raft.driver import RaftDriver
from ottla.raft.messages import Respond, SnapshotPartStored, StoreSnapshotPart
from ottla.raft.requests import FetchSnapshotResponse, LeaderAndEpoch
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable

SNAPSHOT_ID = OffsetAndEpoch(80, 3)


class Member:
    """A driver whose log has descriptors or not."""

    def __init__(self) -> None:
        self.has_descriptors = False
        self.events: list[Any] = []
        self.failures: list[Exception] = []
        node: Any = SimpleNamespace(
            epoch=3,
            role=None,
            deadline_ms=0,
            handle=self._handle,
            poll=lambda _now_ms: [],
        )
        log: Any = SimpleNamespace(
            read_snapshot_part=lambda *_place: self._open(b"part"),
            download=lambda _id: SimpleNamespace(store=lambda *_part: self._open(None)),
        )
        environment: Any = {
            "clock": SimpleNamespace(monotonic_ms=lambda: 0),
            "run_in_worker": self._run,
            "listener": SimpleNamespace(failed=self.failures.append),
            "send": None,
            "on_deadline": lambda _ms: None,
        }
        nothing: Any = None
        self.driver = RaftDriver(node, log, nothing, **environment)

    def _handle(self, event: object, _now_ms: int) -> list[object]:
        self.events.append(event)
        return []

    def _open(self, result: bytes | None) -> bytes | None:
        if not self.has_descriptors:
            raise OSError(errno.EMFILE, "too many open files")
        return result

    def _run(self, job: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
        try:
            result = job()
        except OSError as error:
            done(None, error)
        else:
            done(result, None)

    def ask(self) -> FetchSnapshotResponse:
        """Return what a follower gets that asks for a part."""
        token: Pending[Any] = Pending()
        leader = LeaderAndEpoch(1, 3)
        response = FetchSnapshotResponse(ErrorCode.NONE, leader, SNAPSHOT_ID, 4, 0)
        self.driver._respond(Respond(token, response))
        answer: FetchSnapshotResponse = token.value
        return answer


def test_a_leader_without_descriptors_refuses_a_part_and_goes_on() -> None:
    """The follower asks again later; the node does not halt."""
    member = Member()
    assert member.ask().error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert member.failures == []
    member.has_descriptors = True
    assert member.ask().data == b"part"


def test_a_follower_without_descriptors_stores_the_part_later() -> None:
    """Its periodic tasks try again."""
    member = Member()
    member.driver._write_snapshot(StoreSnapshotPart(SNAPSHOT_ID, 0, b"part"))
    member.driver.retry()
    assert (member.events, member.failures) == ([], [])
    member.has_descriptors = True
    member.driver.retry()
    assert member.events == [SnapshotPartStored(SNAPSHOT_ID)]
