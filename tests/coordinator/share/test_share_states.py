"""Random histories of share groups whose share coordinators answer late, or refuse.

`OTTLA_HISTORIES=5000 pytest tests/coordinator/share/test_share_states.py` tries more of them.
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group import RequestContext
from ottla.errors import ErrorCode
from ottla.protocol.apis import delete_share_group_state, initialize_share_group_state
from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.purgatory.pending import Pending
from tests.coordinator.harness import MemoryPersister, World

if TYPE_CHECKING:
    from ottla.types import Uuid

HISTORIES: Final = int(os.environ.get("OTTLA_HISTORIES", "40"))
STEPS: Final = 80
CONTEXT: Final = RequestContext("client", "/127.0.0.1", 1)
_Altered = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
_Deleted = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic


class LatePersister(MemoryPersister):
    """Share coordinators that answer when they are let; states are begun and deleted in order."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[tuple[Uuid, int]] = set()
        """The share partitions that have a state."""
        self.calls: list[tuple[Any, Any, Pending[Any]]] = []

    def initialize(self, request: Any) -> Pending[Any]:
        return self._ask(request, initialize_share_group_state.InitializeShareGroupStateResponse)

    def delete(self, request: Any) -> Pending[Any]:
        return self._ask(request, delete_share_group_state.DeleteShareGroupStateResponse)

    def _ask(self, request: Any, response: Any) -> Pending[Any]:
        self.calls.append((request, response, Pending()))
        return self.calls[-1][2]

    def answer(self, rng: Random, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer a call that has no earlier one of its share partitions."""
        place = rng.randrange(len(self.calls))
        keys = _keys(self.calls[place][0])
        place = next(at for at, one in enumerate(self.calls) if keys & _keys(one[0]))
        request, response, pending = self.calls.pop(place)
        if not code:
            is_deletion = response is delete_share_group_state.DeleteShareGroupStateResponse
            change = self.known.difference_update if is_deletion else self.known.update
            change(_keys(request))
        self.code = code
        pending.complete(self._answer(request, response).value)


def _keys(request: Any) -> set[tuple[Uuid, int]]:
    return {
        (topic.topic_id, part.partition) for topic in request.topics for part in topic.partitions
    }


class ShareStates:
    """Members of one share group, and an administrator."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.world = World()
        self.persister = self.world.persister = LatePersister()
        self.world.coordinator = self.world.make()
        self.world.elect()

    def step(self) -> None:
        """Send one request, or let something happen."""
        acts = (self.beat, self.leave, self.alter, self.delete, self.delete_group, self.happen)
        (act,) = self.rng.choices(acts, weights=(6, 3, 2, 2, 3, 8))
        act()

    def beat(self, name: str | None = None) -> None:
        """Let a member join, or stay."""
        name = name or self.rng.choice("ab")
        group = self.world.shard().share.find("g")
        known = None if group is None else group.members.get(name)
        fields: dict[str, Any] = {"member_epoch": 0, "subscribed_topic_names": ["t", "u"]}
        if known is not None:
            fields = {"member_epoch": known.member_epoch}
        request = ShareGroupHeartbeatRequest(group_id="g", member_id=name, **fields)
        self.world.coordinator.share.heartbeat(request, CONTEXT)

    def leave(self) -> None:
        """Let members leave."""
        for name in self.rng.choice(("a", "b", "ab")):
            request = ShareGroupHeartbeatRequest(group_id="g", member_id=name, member_epoch=-1)
            self.world.coordinator.share.heartbeat(request, CONTEXT)

    def alter(self) -> None:
        """Set offsets."""
        part = _Altered.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=7)
        topic = _Altered(topic_name=self.rng.choice("tu"), partitions=[part])
        request = AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])
        self.world.coordinator.share_offsets.alter(request)

    def delete(self) -> None:
        """Delete offsets."""
        topics = [_Deleted(topic_name=self.rng.choice("tu"))]
        request = DeleteShareGroupOffsetsRequest(group_id="g", topics=topics)
        self.world.coordinator.share_offsets.delete(request)

    def delete_group(self) -> None:
        """Delete the group."""
        self.world.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["g"]), CONTEXT)

    def happen(self) -> None:
        """Let time pass, a share coordinator answer, or the coordinator move away and back."""
        rng, kind = self.rng, self.rng.random()
        if kind < 0.05:
            self.world.resign()
            self.world.elect()
        elif kind < 0.2:
            self.world.advance(rng.choice((1, 1000, 40_000)))
        elif self.persister.calls:
            failed = rng.random() < 0.3
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if failed else ErrorCode.NONE
            self.persister.answer(rng, code)

    def end(self) -> None:
        """Let all calls be answered; check that what is named as initialised has a state."""
        while self.persister.calls:
            self.persister.answer(self.rng)
        group = self.world.shard().share.find("g")
        known = None if group is None else group.state_partitions
        found = {} if known is None else known.initialized
        named = {(topic_id, index) for topic_id, one in found.items() for index in one.partitions}
        assert named <= self.persister.known


def test_what_is_initialised_has_a_state_and_all_that_is_read_gets_one() -> None:
    """Whatever is deleted, created again and refused meanwhile, and however late answers are."""
    for seed in range(HISTORIES):
        history = ShareStates(Random(seed))
        try:
            for _ in range(STEPS):
                history.step()
            history.end()
            for _ in range(4):
                history.beat("a")
                history.world.advance(30_000)
                history.end()
            group = history.world.shard().share.get("g")
            assert group.state_partitions is not None
            ids = {history.world.topics.topic_id(name) for name in "tu"}
            assert set(group.state_partitions.initialized) == ids
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
