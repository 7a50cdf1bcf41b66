"""Responses to share fetches: which partitions they name, and at what cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.protocol.apis.share_fetch import ShareFetchRequest
from ottla.replication.share.session import MemberKey, TopicIdPartition
from ottla.server.handlers.share.fetch import _fetch_response
from ottla.server.share.delayed_fetch import FetchedRecords
from ottla.types import Uuid

if TYPE_CHECKING:
    import pytest

COUNT = 400
TOPIC = Uuid(bytes(range(16)))


class Partition(TopicIdPartition):
    """A partition that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Partition.compared += 1
        return tuple.__eq__(self, other)

    __hash__ = TopicIdPartition.__hash__


def test_acknowledged_partitions_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After those with records; no partition is compared with all others."""
    monkeypatch.setattr(Partition, "compared", 0)
    partitions: list[TopicIdPartition] = [Partition(TOPIC, index) for index in range(COUNT)]
    session: Any = SimpleNamespace(key=MemberKey("g", "m"))
    settings = SimpleNamespace(record_lock_duration_ms=1)
    ctx: Any = SimpleNamespace(
        broker=SimpleNamespace(share=SimpleNamespace(settings=lambda _group: settings))
    )
    request = ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        max_records=1,
        batch_size=1,
        topics=[],
        forgotten_topics_data=[],
    )
    fetched = {one: FetchedRecords() for one in partitions[COUNT // 2 :]}
    acknowledged = dict.fromkeys(partitions)
    response = _fetch_response(ctx, request, session, fetched, acknowledged)
    (topic,) = response.responses
    order = [*range(COUNT // 2, COUNT), *range(COUNT // 2)]
    assert [one.partition_index for one in topic.partitions] == order
    assert Partition.compared <= 4 * COUNT
