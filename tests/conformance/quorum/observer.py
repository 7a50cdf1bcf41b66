"""An observer of a quorum whose leader is real Kafka: our state machine over one connection.

Kafka: none. Requests wait until `step` sends them, so that the machine runs in turns.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from ottla.purgatory.pending import Pending
from ottla.raft.driver import RaftDriver
from ottla.raft.member import MemberSettings
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import QuorumStateStore
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.requests import ReplicaKey
from ottla.raft.voter_set import VoterHistory, VoterSet
from ottla.raft.wire import requests, responses
from ottla.server.system.files import RealDirectory
from ottla.server.system.timers import SystemClock
from ottla.storage.layout import METADATA_LOG
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.raft.driver import SendRequest
    from ottla.raft.requests import LeaderAndEpoch, Request, Response
    from ottla.types import OffsetAndEpoch
    from tests.conformance.pair import Conversation

LISTENER = "CONTROLLER"
OBSERVER = ReplicaKey(9, Uuid(b"an observer's id"))


def ask(
    conversation: Conversation, request: Request, cluster_id: str, version: int | None = None
) -> Response:
    """Send a request of the quorum in a version, the newest if none is named."""
    if version is None:
        version = requests.message_class(request).versions.highest
    message: Any = requests.to_message(request, version, cluster_id=cluster_id)
    answer: Any = conversation.ask(message, version)
    return responses.from_message(answer, LISTENER)


class Observer:
    """A member without a vote, in a directory of its own."""

    def __init__(
        self,
        directory: Path,
        conversation: Conversation | None = None,
        cluster_id: str = "",
        *,
        send: SendRequest | None = None,
        on_deadline: Callable[[int], None] = lambda _ms: None,
    ) -> None:
        """Take a conversation, for `follow`, or what sends and wakes it."""
        self._conversation = conversation
        self._cluster_id = cluster_id
        self._outgoing: list[tuple[Request, Pending[Any]]] = []
        self.high_watermark = -1
        self.snapshots: list[OffsetAndEpoch] = []
        self.requests: list[str] = []
        """The names of what was sent."""
        clock = SystemClock()
        root = RealDirectory(str(directory))
        log = ReplicatedLog.open(root, now_ms=clock.now_ms())
        store = QuorumStateStore(root, METADATA_LOG)
        node = RaftNode(
            MemberSettings(OBSERVER, bootstrap_count=1),
            log=log,
            voters=VoterHistory(VoterSet([])),
            election=store.read_at_start(
                log_end_offset=log.end_offset, epoch_at_end=log.epoch_at_end()
            ),
            rng=Random(1),
            now_ms=clock.monotonic_ms(),
            wall_ms=clock.now_ms,
        )
        self.driver = RaftDriver(
            node,
            log,
            store,
            clock=clock,
            run_in_worker=_run_now,
            listener=self,
            send=send or self._send,
            on_deadline=on_deadline,
        )

    def _send(self, _node_id: int, _endpoints: object, request: Request) -> Pending[Any]:
        pending: Pending[Any] = Pending()
        self._outgoing.append((request, pending))
        return pending

    def follow(self, end_offset: int, *, max_steps: int = 100) -> None:
        """Fetch until everything below end_offset is committed here."""
        assert self._conversation is not None
        for _ in range(max_steps):
            if self.high_watermark >= end_offset:
                return
            self.driver.tick()
            outgoing, self._outgoing = self._outgoing, []
            for request, pending in outgoing:
                self.requests.append(type(request).__name__)
                pending.complete(ask(self._conversation, request, self._cluster_id))
        raise AssertionError(f"{self.high_watermark} after {self.requests}")

    # What the driver announces

    def became_leader(self, epoch: int, _epoch_start_offset: int, /) -> None:
        """Refuse: an observer leads nothing."""
        raise AssertionError(f"an observer leads epoch {epoch}")

    def batch_appended(self, last_offset: int, size_bytes: int, /) -> None:
        """Refuse: an observer is offered nothing."""
        raise AssertionError(f"an observer wrote {size_bytes} bytes up to {last_offset}")

    def high_watermark_moved(self, offset: int, /) -> None:
        """Note what is committed."""
        self.high_watermark = offset

    def epoch_changed(self, leader: LeaderAndEpoch, /) -> None:
        """Nothing follows: the machine itself fetches from the leader."""

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch, /) -> None:
        """Note it."""
        self.snapshots.append(snapshot_id)

    def resigned(self, epoch: int, /) -> None:
        """Refuse: an observer leads nothing."""
        raise AssertionError(f"an observer led epoch {epoch}")

    def failed(self, error: Exception) -> None:
        """No disk fails here."""
        raise error


def _run_now(job: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
    done(job(), None)
