"""Tests of replication.fetch_session (KIP-227)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch_values import FetchedPartition, FetchValues
from ottla.replication import fetch_session
from ottla.replication.fetch_session import (
    MIN_EVICTION_MS,
    CachedPartition,
    FetchSession,
    FetchSessionCache,
)
from ottla.replication.partition import Partition
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.testing.disk import SimulatedDisk
from ottla.types import ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from ottla.protocol.fetch_values import PartitionKey

KEY: PartitionKey = ("t", ZERO_UUID, 0)


def request(
    *partitions: int, session_id: int = 0, epoch: int = 0, forgotten: tuple[int, ...] = ()
) -> FetchValues:
    """Return a fetch of partitions of topic "t", each from the offset of its own number."""
    requested = {("t", ZERO_UUID, one): (-1, one, -1, -1, 100) for one in partitions}
    removed = [("t", ZERO_UUID, one) for one in forgotten]
    return FetchValues(None, -1, -1, 0, 1, 1 << 20, 0, session_id, epoch, requested, removed, "")


def begun(cache: FetchSessionCache, *partitions: int, now_ms: int = 0) -> FetchSession:
    """Return the session that a full fetch begins."""
    session = cache.session_of(request(*partitions), 12, now_ms)
    assert session is not None
    return session


def data(*, high_watermark: int = 0, records: bytes = b"", error: int = 0) -> FetchedPartition:
    """Return one partition's answer."""
    return FetchedPartition(
        KEY, error, high_watermark, -1, 0, records=records, size_bytes=len(records)
    )


@pytest.fixture
def cache() -> FetchSessionCache:
    """Return a cache of two sessions."""
    return FetchSessionCache(2, random.Random(1))


def test_a_session_remembers_partitions(cache: FetchSessionCache) -> None:
    """An empty incremental request reads what the session holds, less what it forgot."""
    session = begun(cache, 0, 1)
    assert session.session_id > 0
    again = cache.session_of(request(session_id=session.session_id, epoch=1, forgotten=(0,)), 12, 0)
    assert again is session
    assert [index for _, _, index in session.partitions] == [1]


def test_a_request_that_forgets_all_overtakes_those_before_it(cache: FetchSessionCache) -> None:
    """One in turns or in a wait has results of partitions that are no longer there."""
    session = begun(cache, 0, 1)
    forgets = request(session_id=session.session_id, epoch=1, forgotten=(0, 1))
    assert cache.session_of(forgets, 12, 0) is None
    assert session.epoch == 2


def test_topics_are_forgotten_by_their_id(cache: FetchSessionCache) -> None:
    """From version 13 on topics have ids only, also where they are forgotten (KAFKA-13079)."""
    ids = [Uuid(bytes([number]) * 16) for number in (1, 2)]
    keys = [("", one, 0) for one in ids]
    requested = dict.fromkeys(keys, (-1, 0, -1, -1, 100))
    first = request()._replace(partitions=requested)
    session = cache.session_of(first, 13, 0)
    assert session is not None
    later = request(session_id=session.session_id, epoch=1)._replace(forgotten=keys[:1])
    assert cache.session_of(later, 13, 0) is session
    assert [topic_id for _, topic_id, _ in session.partitions] == [ids[1]]


@pytest.mark.parametrize(
    ("session_offset", "epoch", "version", "code"),
    [
        (1, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 5, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_wrong_session_is_named(
    cache: FetchSessionCache, session_offset: int, epoch: int, version: int, code: ErrorCode
) -> None:
    """Unknown ids, wrong epochs and a change between names and ids each have their code."""
    session_id = begun(cache, 0).session_id
    with pytest.raises(KafkaError) as raised:
        cache.session_of(request(session_id=session_id + session_offset, epoch=epoch), version, 0)
    assert raised.value.code == code


def test_a_full_request_ends_the_old_session(cache: FetchSessionCache) -> None:
    """Epoch 0 with an id replaces the session, epoch -1 only ends it."""
    first = begun(cache, 0)
    second = cache.session_of(request(0, session_id=first.session_id), 12, 0)
    assert second is not None
    assert second.session_id != first.session_id
    assert len(cache) == 1
    assert cache.session_of(request(0, session_id=second.session_id, epoch=-1), 12, 0) is None
    assert len(cache) == 0


def test_a_session_without_partitions_ends_when_it_is_continued(
    cache: FetchSessionCache,
) -> None:
    """Also one that has begun so; the answer then names no session."""
    session = cache.session_of(request(), 12, 0)
    assert session is not None
    assert len(cache) == 1
    assert cache.session_of(request(session_id=session.session_id, epoch=1), 12, 0) is None
    assert len(cache) == 0


def test_only_idle_sessions_make_room(cache: FetchSessionCache) -> None:
    """A full cache serves without a session until one has been idle for two minutes."""
    begun(cache, 0)
    begun(cache, 0, now_ms=1)
    assert cache.session_of(request(0), 12, 2) is None
    begun(cache, 0, now_ms=MIN_EVICTION_MS + 1)
    assert cache.evictions == 1


def test_a_larger_session_takes_the_place_of_a_smaller_one(cache: FetchSessionCache) -> None:
    """Of those that had their two minutes, however busy they are; an equal one stays."""
    first = begun(cache, 0).session_id
    second = begun(cache, 0, 1).session_id
    late_ms = MIN_EVICTION_MS + 1
    for session_id in (first, second):
        cache.session_of(request(session_id=session_id, epoch=1), 12, late_ms - 2)
    assert cache.session_of(request(0, 1), 12, late_ms - 2) is None
    assert cache.session_of(request(0), 12, late_ms) is None
    begun(cache, 0, 1, now_ms=late_ms)
    with pytest.raises(KafkaError):
        cache.session_of(request(session_id=first, epoch=2), 12, late_ms)
    assert cache.session_of(request(session_id=second, epoch=2), 12, late_ms) is not None


def follower(*partitions: int) -> FetchValues:
    """Return a full fetch of a follower."""
    return request(*partitions)._replace(replica_id=2, replica_epoch=7)


def test_a_follower_takes_the_place_of_a_consumer(cache: FetchSessionCache) -> None:
    """At once and whatever the sizes: consumers must not keep a follower without a session."""
    large = begun(cache, 0, 1, 2).session_id
    begun(cache, 0, 1)
    assert cache.session_of(follower(0), 12, 1, is_follower=True) is not None
    assert cache.session_of(request(session_id=large, epoch=1), 12, 1) is not None
    assert cache.session_of(follower(1), 12, 1, is_follower=True) is not None
    assert cache.evictions == 2


def test_a_consumer_takes_no_follower_s_place(cache: FetchSessionCache) -> None:
    """However many partitions it reads; only another, larger follower's session does, later."""
    for number in range(2):
        assert cache.session_of(follower(number), 12, 0, is_follower=True) is not None
    late_ms = MIN_EVICTION_MS + 1
    for session_id in list(cache._sessions):
        follow = request(session_id=session_id, epoch=1)
        cache.session_of(follow, 12, late_ms - 1, is_follower=True)
    assert cache.session_of(request(0, 1, 2), 12, late_ms) is None
    assert cache.session_of(follower(0, 1), 12, late_ms - 2, is_follower=True) is None
    assert cache.session_of(follower(0, 1), 12, late_ms, is_follower=True) is not None


def test_an_answer_names_only_what_changed() -> None:
    """Records, a moved watermark, and errors with their end are told; silence is left out."""
    cached = CachedPartition(KEY, (-1, 0, -1, -1, 100))
    assert cached.must_respond(data(high_watermark=5))
    assert not cached.must_respond(data(high_watermark=5))
    assert cached.must_respond(data(high_watermark=5, records=b"x"))
    assert cached.must_respond(data(error=3, high_watermark=-1))
    assert cached.must_respond(data(high_watermark=5))


def test_served_partitions_go_to_the_end(cache: FetchSessionCache) -> None:
    """A byte limit starves no partition: one that was served goes to the end."""
    session = begun(cache, 0, 1, 2)
    session.serve_later([data(records=b"x")])
    assert [index for _, _, index in session.partitions] == [1, 2, 0]


def test_a_partition_that_is_requested_twice_has_the_later_offset(
    cache: FetchSessionCache,
) -> None:
    """It stays where it is in the order, and an unnamed one keeps its offset."""
    session = begun(cache, 0, 1)
    later = request(session_id=session.session_id, epoch=1)
    moved = later._replace(partitions={KEY: (-1, 7, -1, -1, 100)})
    assert cache.session_of(moved, 12, 0) is session
    offsets = [(key[2], one.fetch_offset) for key, one in session.partitions.items()]
    assert offsets == [(0, 7), (1, 1)]


def test_a_partition_whose_replica_was_removed_is_looked_at() -> None:
    """It moved to other brokers: a consumer that reads here must be answered so."""
    log = PartitionLog.open(SimulatedDisk(), "t-0", config=LogConfig(), now_ms=0)
    cached = CachedPartition(KEY, (-1, 0, -1, -1, 100))
    cached.found(Partition(TopicPartition("t", 0), ZERO_UUID, log))
    cached.high_watermark = cached.log_start_offset = 0
    assert cached.is_unchanged()
    log.delete()
    assert not cached.is_unchanged()


def begin(cache: FetchSessionCache, count: int, name: str, owner: object) -> FetchSession | None:
    """Begin a session of partitions of one topic."""
    partitions = {(name, ZERO_UUID, index): (-1, 0, -1, -1, 100) for index in range(count)}
    return cache.session_of(request()._replace(partitions=partitions), 12, 0, owner)


def test_sessions_of_ended_connections_share_a_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client finds its session after a disconnect, unless later ones needed the memory."""
    monkeypatch.setattr(fetch_session, "MAX_ORPHAN_BYTES", 200_000)
    cache = FetchSessionCache(1000, random.Random(1))
    begun = []
    for number in range(20):
        session = begin(cache, 100, f"missing{number}", number)
        assert session is not None
        begun.append(session.session_id)
        cache.connection_closed(number)
    kept = [one for one in begun if one in cache._sessions]
    assert kept == begun[-len(kept) :]
    assert 0 < cache.used_bytes <= 200_000
    adopted = cache._sessions[kept[0]]
    follow = request(session_id=adopted.session_id, epoch=adopted.epoch)
    assert cache.session_of(follow, 12, 0, "new") is adopted
    for number in range(20):
        begin(cache, 100, f"more{number}", number)
        cache.connection_closed(number)
    assert adopted.session_id in cache._sessions
    assert not cache._owned.keys() - {"new"}


def test_partitions_of_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that would exceed the bytes is not begun; one that grows beyond them ends."""
    monkeypatch.setattr(fetch_session, "MAX_BYTES", 100_000)
    cache = FetchSessionCache(1000, random.Random(1))
    assert begin(cache, 1000, "large", 1) is None
    session = begin(cache, 100, "fits", 1)
    assert session is not None
    assert begin(cache, 100, "no room", 2) is None
    more = {("grows", ZERO_UUID, index): (-1, 0, -1, -1, 100) for index in range(100)}
    follow = request(session_id=session.session_id, epoch=session.epoch)
    with pytest.raises(KafkaError) as raised:
        cache.session_of(follow._replace(partitions=more), 12, 0, 1)
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.used_bytes) == (0, 0)


def test_no_clients_take_the_room_of_a_follower_s_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows beyond what clients may use together, and takes none of that; others see none."""
    monkeypatch.setattr(fetch_session, "MAX_BYTES", 100_000)
    cache = FetchSessionCache(1000, random.Random(1))
    clients = [begin(cache, 100, f"client{number}", number) for number in range(3)]
    assert [one is not None for one in clients] == [True, False, False]
    used_bytes = cache.used_bytes
    session = cache.session_of(follower(*range(500)), 12, 0, "follower", is_follower=True)
    assert session is not None
    more = request(*range(500, 5000), session_id=session.session_id, epoch=1)
    with pytest.raises(KafkaError) as raised:
        cache.session_of(more, 12, 0, "client")
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.session_of(more, 12, 0, "follower", is_follower=True) is session
    assert len(session.partitions) == 5000
    assert (cache.used_bytes, cache.evictions, len(cache)) == (used_bytes, 0, 2)
    cache.connection_closed("follower")
    assert (cache.used_bytes, len(cache)) == (used_bytes, 1)


def test_who_may_not_replicate_begins_a_client_s_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever replica id it claims: followers' sessions are neither bounded nor evicted."""
    monkeypatch.setattr(fetch_session, "MAX_BYTES", 100_000)
    cache = FetchSessionCache(2, random.Random(1))
    assert cache.session_of(follower(*range(1000)), 12, 0) is None
    for number in range(2):
        assert cache.session_of(follower(number), 12, 0) is not None
    assert cache.session_of(follower(0), 12, 0, is_follower=True) is not None
