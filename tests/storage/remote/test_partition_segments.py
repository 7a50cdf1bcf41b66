"""The table of one partition's remote segments, and which of them belong to a log."""

from __future__ import annotations

from random import Random

import pytest

from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ottla.storage.remote.partition_segments import (
    PartitionSegments,
    end_in_lineage,
    is_in_lineage,
    with_records,
)
from ottla.storage.remote.segment import RemoteSegment, SegmentState, SegmentUpdate
from ottla.types import Uuid

Epochs = tuple[tuple[int, int], ...]
_COPIED = SegmentState.COPY_SEGMENT_FINISHED


def segment_of(number: int, start: int, end: int, epochs: Epochs = ()) -> RemoteSegment:
    """Return a segment whose copy has started."""
    return RemoteSegment(
        topic_id=Uuid(bytes(16)),
        topic="t",
        partition=0,
        segment_id=Uuid(number.to_bytes(16)),
        start_offset=start,
        end_offset=end,
        leader_epochs=epochs or ((0, start),),
        size_bytes=100,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=0,
        state=SegmentState.COPY_SEGMENT_STARTED,
        is_transaction_index_empty=True,
    )


def update_of(segment: RemoteSegment, state: SegmentState) -> SegmentUpdate:
    """Return the record of a segment's later state."""
    return SegmentUpdate(
        topic_id=segment.topic_id,
        topic="t",
        partition=0,
        segment_id=segment.segment_id,
        broker_id=2,
        event_timestamp_ms=5,
        state=state,
    )


def copied(table: PartitionSegments, segment: RemoteSegment) -> RemoteSegment:
    """Copy a segment whole."""
    assert table.apply(segment)
    assert table.apply(update_of(segment, _COPIED))
    return segment


def numbers(segments: list[RemoteSegment]) -> list[int]:
    """Return the segments' numbers."""
    return [int.from_bytes(one.segment_id) for one in segments]


def test_a_segment_is_read_once_its_copy_is_complete() -> None:
    """Until then it has an entry, but no offset leads to it."""
    table = PartitionSegments()
    segment = segment_of(1, 0, 9)
    assert table.apply(segment)
    assert table.segment_at(0, 5) is None
    assert table.highest_offset(0) is None
    assert numbers(table.segments(0)) == [1]
    assert table.apply(update_of(segment, _COPIED))
    found = table.segment_at(0, 9)
    assert found is not None
    assert (found.state, found.broker_id, found.event_timestamp_ms) == (_COPIED, 2, 5)
    assert table.highest_offset(0) == 9
    assert table.segment_at(0, 10) is None
    assert table.segment_at(1, 5) is None


def test_states_that_cannot_follow_change_nothing() -> None:
    """An update without a first record, or behind a deletion, is refused."""
    table = PartitionSegments()
    segment = segment_of(1, 0, 9)
    assert not table.apply(update_of(segment, _COPIED))
    assert not table.apply(update_of(segment, SegmentState.COPY_SEGMENT_STARTED))
    copied(table, segment)
    assert not table.apply(segment)
    assert not table.apply(update_of(segment, SegmentState.DELETE_SEGMENT_FINISHED))
    assert table.apply(update_of(segment, _COPIED))  # written twice
    assert numbers(table.segments()) == [1]


def test_a_deletion_is_listed_until_it_is_finished() -> None:
    """It is not served from its start on, and keeps the highest offset until nothing is left."""
    table = PartitionSegments()
    segment, other = copied(table, segment_of(1, 0, 9)), copied(table, segment_of(2, 10, 19))
    assert table.apply(update_of(other, SegmentState.DELETE_SEGMENT_STARTED))
    assert table.segment_at(0, 12) is None
    assert table.highest_offset(0) == 19
    assert numbers(table.segments(0)) == [1, 2]
    assert table.apply(update_of(other, SegmentState.DELETE_SEGMENT_FINISHED))
    assert numbers(table.segments()) == [1]
    assert table.highest_offset(0) == 19
    assert table.apply(update_of(segment, SegmentState.DELETE_SEGMENT_STARTED))
    assert table.apply(update_of(segment, SegmentState.DELETE_SEGMENT_FINISHED))
    assert table.highest_offset(0) is None
    assert len(table) == 0


def test_a_lineage_goes_on_before_the_known_epochs() -> None:
    """Of complete segments that are contiguous, back to the log's start; newer leaders count."""
    table = PartitionSegments()
    copied(table, segment_of(1, 0, 9))
    copied(table, segment_of(2, 10, 29, ((0, 10), (2, 15))))
    copied(table, segment_of(3, 10, 25))  # of a leader that lost an unclean election
    assert table.apply(segment_of(4, 30, 39, ((2, 30), (4, 35))))
    assert table.lineage_from(0, [(4, 30)]) == [(0, 0), (2, 15), (4, 30)]
    assert table.lineage_from(12, [(2, 30), (4, 35)]) == [(0, 10), (2, 15), (4, 35)]
    assert table.lineage_from(30, [(2, 30)]) == [(2, 30)]
    assert table.lineage_from(0, [(4, 31)]) == [(4, 31)]  # a gap
    assert table.lineage_from(0, []) == []


def test_a_later_copy_of_the_same_offsets_is_read() -> None:
    """Another leader copied longer segments: those within them are unreferenced, yet listed."""
    table = PartitionSegments()
    copied(table, segment_of(1, 0, 100))
    copied(table, segment_of(2, 0, 200))
    found = table.segment_at(0, 50)
    assert found is not None
    assert found.end_offset == 200
    assert numbers(table.segments(0)) == [2, 1]
    copied(table, segment_of(3, 5, 300))
    found = table.segment_at(0, 95)
    assert found is not None
    assert found.end_offset == 300
    found = table.segment_at(0, 4)
    assert found is not None
    assert found.end_offset == 200


def test_an_offset_is_looked_up_in_its_epoch() -> None:
    """A segment of several epochs serves each of them within its bounds."""
    table = PartitionSegments()
    copied(table, segment_of(1, 0, 99, ((0, 0), (2, 40), (3, 60))))
    assert table.segment_at(0, 39) is not None
    assert table.segment_at(0, 40) is None
    assert table.segment_at(2, 59) is not None
    assert table.segment_at(3, 99) is not None
    assert [table.highest_offset(epoch) for epoch in (0, 1, 2, 3)] == [39, None, 59, 99]


@pytest.mark.parametrize(
    ("ours", "end"),
    [
        (((0, 0), (2, 5), (4, 8)), 10),
        (((0, 0), (2, 5), (4, 8), (6, 12)), 10),
        (((0, 0), (2, 5), (4, 8), (6, 9)), 9),
        (((0, 0), (2, 5), (6, 8)), 8),
        (((0, 0), (2, 5)), 8),
        (((0, 0), (3, 5), (4, 8)), 5),
        (((0, 0), (2, 4), (4, 8)), 4),
        (((0, 3), (4, 8)), 5),
        (((0, 0),), 5),
    ],
)
def test_a_segment_is_of_a_log_until_their_epochs_differ(
    ours: tuple[tuple[int, int], ...], end: int
) -> None:
    """Whichever of both has another epoch first; an epoch without records is none."""
    epochs = LeaderEpochs([EpochEntry(*entry) for entry in ours])
    segment = segment_of(1, 0, 9, ((0, 0), (1, 5), (2, 5), (4, 8)))
    assert end_in_lineage(segment, 0, epochs) == end


@pytest.mark.parametrize("seed", range(30))
def test_the_table_agrees_with_a_list(seed: int) -> None:
    """Segments that follow each other, copied and deleted at random: a list finds the same."""
    rng = Random(seed)
    table, model = PartitionSegments(), dict[int, RemoteSegment]()
    states: dict[int, SegmentState] = {}
    end = epoch = 0
    for number in range(1, 60):
        size = rng.randrange(1, 20)
        epochs = [(epoch, end)]
        if size > 5 and rng.random() < 0.3:
            epoch += 1
            epochs.append((epoch, end + rng.randrange(1, size)))
        segment = segment_of(number, end, end + size - 1, tuple(epochs))
        end += size
        model[number] = segment
        table.apply(segment)
        states[number] = SegmentState.COPY_SEGMENT_STARTED
        for _ in range(rng.randrange(4)):
            chosen = rng.choice(list(states) or [number])
            state = rng.choice(list(SegmentState))
            if table.apply(update_of(model[chosen], state)):
                states[chosen] = state
                if state is SegmentState.DELETE_SEGMENT_FINISHED:
                    del states[chosen]
    assert numbers(table.segments()) == sorted(states)
    for number, segment in model.items():
        is_read = states.get(number) is _COPIED
        bounds = [*(start for _, start in segment.leader_epochs[1:]), segment.end_offset + 1]
        for (one, start), stop in zip(segment.leader_epochs, bounds, strict=True):
            for offset in range(start, stop):
                found = table.segment_at(one, offset)
                assert (found is not None) == is_read
                assert found is None or found.segment_id == segment.segment_id


LINEAGE = ((1, 10), (3, 50), (5, 80))


@pytest.mark.parametrize(
    ("start", "end", "epochs", "is_valid"),
    [
        (10, 49, ((1, 10),), True),
        (0, 49, ((0, 0), (1, 10)), True),  # older than the log's start
        (0, 49, ((1, 0),), True),  # the log's first epoch begins later than it did
        (0, 9, ((0, 0),), False),  # wholly before the lineage
        (10, 59, ((1, 10), (3, 50)), True),
        (10, 59, ((1, 10), (2, 50)), False),  # another leader's records
        (10, 59, ((1, 10), (3, 45)), False),
        (10, 89, ((1, 10), (5, 50)), False),  # leaves out epoch 3
        (10, 50, ((1, 10),), False),  # beyond the end of its epoch
        (40, 60, ((3, 40),), False),  # before the epoch's start
        (80, 99, ((5, 80),), True),
        (80, 100, ((5, 80),), False),  # at the end of the log
        (80, 90, ((6, 80),), False),
        (50, 79, ((2, 50), (3, 50)), True),  # epoch 2 has no records
    ],
)
def test_lineage(start: int, end: int, epochs: Epochs, is_valid: bool) -> None:  # noqa: FBT001
    """Segments whose epochs begin and end where the log's do belong to it."""
    assert is_in_lineage(segment_of(1, start, end, epochs), 100, LINEAGE) is is_valid


def test_epochs_without_records_are_left_out() -> None:
    """Two epochs that begin at the same offset: the later one has the records."""
    assert with_records([(0, 0), (1, 5), (2, 5), (4, 9)]) == [(0, 0), (2, 5), (4, 9)]
    assert not is_in_lineage(segment_of(1, 0, 5), 100, ())
