"""Static members while their coordinator moves."""

from __future__ import annotations

from ottla.errors import ErrorCode
from tests.server.reliability.test_groups import join, restarted, sync, world


def test_a_static_member_that_comes_back_as_its_coordinator_moves() -> None:
    """Its new id is stored with the next generation: another coordinator fences it, as Kafka's.

    `tests/transcripts/real_groups/classic.txt` has the same sequence, with what Kafka loads.
    """
    at = world()
    static = join(at, static="one").value
    assert sync(at, static.member_id, 1, static.member_id).value.error_code == 0
    join(at)
    reborn = join(at, static="one").value
    at = restarted(at)
    answer = join(at, reborn.member_id, static="one").value
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert join(at, static="one").value.error_code == ErrorCode.NONE
