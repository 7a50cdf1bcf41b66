"""The file quorum-state, byte for byte as Kafka writes it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.raft.quorum_state import (
    ElectionState,
    QuorumStateStore,
    decode_quorum_state,
    encode_quorum_state,
)
from ottla.testing.disk import SimulatedDisk
from ottla.types import Uuid

STATIC = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
DYNAMIC = (
    b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,'
    b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)


@pytest.mark.parametrize(("data", "kraft_version"), [(STATIC, 0), (DYNAMIC, 1)])
def test_reads_and_writes_what_kafka_wrote(data: bytes, kraft_version: int) -> None:
    """Both versions come out as they went in."""
    state = decode_quorum_state(data)
    assert (state.leader_id, state.leader_epoch, state.voted_id) == (1, 1, -1)
    assert encode_quorum_state(state, kraft_version=kraft_version) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"data_version":7}',
        STATIC.replace(b":1,", b':"x",', 1),
        DYNAMIC.replace(b'Epoch":1', b'Epoch":2147483647'),
        DYNAMIC.replace(b'Epoch":1', b'Epoch":-1'),
    ],
)
def test_a_damaged_file_is_said_to_be_one(data: bytes) -> None:
    """A node that cannot read what it voted must not go on."""
    with pytest.raises(CorruptMessage):
        decode_quorum_state(data)


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(data: bytes) -> None:
    """Arbitrary bytes are a state or corrupt, nothing else."""
    with contextlib.suppress(CorruptMessage):
        decode_quorum_state(data)


def test_a_vote_survives_a_power_cut() -> None:
    """What `write` returned from is what `read` finds after a crash."""
    for seed in range(20):
        disk = SimulatedDisk(seed)
        disk.make("log")
        disk.sync()
        store = QuorumStateStore(disk, "log")
        assert store.read() is None
        state = ElectionState(3, -1, 1, Uuid(b"v" * 16))
        store.write(state, kraft_version=1)
        disk.crash()
        assert store.read() == state


@pytest.mark.parametrize("damage", [None, b"", b"{}"])
def test_a_lost_vote_refuses_the_start(damage: bytes | None) -> None:
    """Unless the log is empty: then there was no election yet."""
    disk = SimulatedDisk()
    disk.make("log")
    store = QuorumStateStore(disk, "log")
    if damage is None:
        assert store.read_at_start(log_end_offset=0, epoch_at_end=0) == ElectionState()
    else:
        disk.write_file_atomically("log/quorum-state", damage)
    with pytest.raises(KafkaError) as caught:
        store.read_at_start(log_end_offset=1, epoch_at_end=1, path="/data")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "ottla log-repair --log-dir /data --new-quorum-state" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_epoch_is_at_least_that_of_the_log() -> None:
    """As in Kafka: votes of an older epoch do not count."""
    disk = SimulatedDisk()
    disk.make("log")
    store = QuorumStateStore(disk, "log")
    store.write(ElectionState(3, -1, 1), kraft_version=1)
    assert store.read_at_start(log_end_offset=9, epoch_at_end=3).voted_id == 1
    assert store.read_at_start(log_end_offset=9, epoch_at_end=5) == ElectionState(5)
