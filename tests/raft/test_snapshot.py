"""Snapshots: their bytes, their names, and what damage does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import CorruptMessage, KafkaError
from ottla.raft.snapshot import (
    SnapshotEncoder,
    decode_snapshot,
    encode_snapshot,
    parse_snapshot_name,
    snapshot_name,
)
from ottla.raft.voter_set import Voter, VoterAddress, VoterSet
from ottla.types import OffsetAndEpoch, Uuid

VOTERS = VoterSet([Voter(1, Uuid(b"d" * 16), (VoterAddress("CONTROLLER", "127.0.0.1", 9093),))])


@given(values=st.lists(st.binary(min_size=1, max_size=50), max_size=30))
def test_what_is_written_is_read(values: list[bytes]) -> None:
    """Records, voters and the last timestamp come back."""
    data = encode_snapshot(
        values,
        now_ms=5,
        last_contained_log_timestamp=4,
        kraft_version=1,
        voters=VOTERS,
    )
    content = decode_snapshot(data)
    assert content.values == values
    assert (content.kraft_version, content.voters) == (1, VOTERS)
    assert content.last_contained_log_timestamp == 4


@given(values=st.lists(st.binary(min_size=1, max_size=9), max_size=600))
def test_slices_make_the_same_content(values: list[bytes]) -> None:
    """However little is encoded at a time; records are asked for as they are needed."""
    asked: list[bytes] = []
    encoder = SnapshotEncoder(
        (asked.append(value) or value for value in values),  # type: ignore[func-returns-value] # notes what was asked
        now_ms=5,
        leader_epoch=3,
        kraft_version=1,
        voters=VOTERS,
    )
    for steps, _ in enumerate(encoder.encode(), 1):
        assert len(asked) == steps
    content = decode_snapshot(b"".join(encoder.finish()))
    assert (content.values, content.voters) == (values, VOTERS)


def test_large_snapshots_have_several_batches() -> None:
    """No batch grows beyond a megabyte."""
    values = [b"v" * 10_000] * 300
    assert decode_snapshot(encode_snapshot(values, now_ms=0)).values == values


@pytest.mark.parametrize("cut", [1, 20, 75, 100])
def test_half_a_snapshot_is_none(cut: int) -> None:
    """Without its footer a file is not believed, wherever it ends."""
    data = encode_snapshot([b"a", b"b"], now_ms=0)
    with pytest.raises(KafkaError):
        decode_snapshot(data[:-cut])


@given(position=st.integers(0, 200), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed_or_harmless(position: int, bit: int) -> None:
    """Damage in what the checksum covers raises; nothing else than KafkaError ever does."""
    data = bytearray(encode_snapshot([b"abc"], now_ms=0))
    position %= len(data)
    data[position] ^= 1 << bit
    try:
        decode_snapshot(data)
    except KafkaError:
        return
    assert position % 256 < len(data)


def test_nothing_follows_a_footer() -> None:
    """Bytes behind the footer make a file suspect."""
    data = encode_snapshot([b"a"], now_ms=0)
    with pytest.raises(CorruptMessage):
        decode_snapshot(data + data)


def test_names_are_end_offset_and_epoch() -> None:
    """Twenty and ten digits, as Kafka's."""
    name = snapshot_name(OffsetAndEpoch(25, 1))
    assert name == "00000000000000000025-0000000001.checkpoint"
    assert parse_snapshot_name(name) == OffsetAndEpoch(25, 1)
    assert parse_snapshot_name("00000000000000000025.log") is None
