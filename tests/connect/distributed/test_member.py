"""What a member tells of its group, and answers that come too late."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.clients.membership.classic import GroupMemberSettings, GroupState
from ottla.connect.distributed.member import ConnectMember
from ottla.connect.distributed.protocol import WorkerState
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import pytest


class Events:
    """The events in their order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def prepare(self, life: int) -> None:
        """Note it."""
        self.seen.append(life)

    def lost(self) -> None:
        """Note it."""
        self.seen.append("lost")


def member_of(events: Events, coordinator: Any) -> ConnectMember:
    """Return a member without a network."""
    client: Any = SimpleNamespace(transport=SimpleNamespace(wake=lambda: None), now_ms=0)
    settings = GroupMemberSettings(6000, 1000, 60_000, 30_000, 100)
    return ConnectMember(settings, client, coordinator, events)  # type: ignore[arg-type] # a part


def coordinator_of(fatal: KafkaError | None = None) -> Any:
    """Return a lookup that has found nothing."""
    return SimpleNamespace(
        poll=lambda _: None, known=False, fatal=fatal, next_deadline_ms=lambda: None
    )


def test_a_missing_right_is_logged_and_not_at_each_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line in half a minute, as long as it lasts."""
    coordinator = coordinator_of()
    member = member_of(Events(), coordinator)
    with caplog.at_level(logging.ERROR, "ottla.connect"):
        for now_ms in range(1, 60_000, 1000):
            coordinator.fatal = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            member.poll(now_ms)
    assert len(caplog.records) == 2
    assert "cannot join its group" in caplog.text


def test_a_state_of_an_earlier_membership_is_not_stated() -> None:
    """The herder was asked, then the membership ended: its answer names work that it gave up."""
    events = Events()
    member = member_of(events, coordinator_of())
    member.poll(1)
    member.poll(2)
    assert events.seen == [0]  # asked once
    member._forget(lost=True)
    member.join(WorkerState("u", 3), 0)
    assert member.state is GroupState.UNJOINED
    member.poll(3)
    assert events.seen == [0, "lost", 1]
    member.join(WorkerState("u", 3), 1)
    state: Any = member.state
    assert state is GroupState.READY_TO_JOIN
