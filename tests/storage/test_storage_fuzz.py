"""Whatever bytes lie in the files or come from a leader, only Kafka's errors come out."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import CorruptMessage, KafkaError
from ottla.storage.batches import whole_batches
from ottla.storage.directories.checkpoints import decode_offsets
from ottla.storage.directories.log_dir import decode_clean_marker, decode_meta_properties
from ottla.storage.directories.partition_metadata import decode_partition_metadata
from ottla.storage.log.leader_epochs import decode_leader_epochs
from ottla.storage.producers.snapshot import decode_snapshot
from ottla.testing.disk import SimulatedDisk
from tests.storage.logs import NOW_MS, close, new_log, put, send

NAMES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.mark.parametrize(
    "decode",
    [
        whole_batches,
        decode_offsets,
        decode_leader_epochs,
        decode_meta_properties,
        decode_partition_metadata,
        decode_snapshot,
        decode_clean_marker,
    ],
)
@given(data=st.binary(max_size=300))
def test_decoders_raise_only_corrupt_message(decode: object, data: bytes) -> None:
    """Arbitrary bytes are read or refused."""
    with suppress(CorruptMessage):
        decode(data)  # type: ignore[operator] # one of the functions above


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_damaged_files_never_break_a_recovery(data: st.DataObject) -> None:
    """Any files damaged anywhere: after a crash the log opens, reads and takes appends."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(12):
        send(log, 1, number)
    close(log)
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from(disk.list("t-0")))
        size = disk.size(f"t-0/{name}")
        file = disk.open(f"t-0/{name}")
        if data.draw(st.booleans()):
            file.truncate(data.draw(st.integers(0, size + 20)))
        else:
            file.write_at(data.draw(st.integers(0, size)), data.draw(st.binary(max_size=90)))
    log = new_log(disk)
    end = log.log_end_offset
    # a batch's base offset is under no checksum, so that damage can push it up: Kafka believes
    # it as well, for compacted logs have such gaps; read around the gap then
    assert end >= 0
    if end > 12:
        return
    assert put(log).first_offset == end
    for offset in range(log.log_start_offset, log.log_end_offset):
        assert log.reads.read(offset, 100).records
    log.reads.offset_for_timestamp(NOW_MS)
    log.truncation.truncate_to(end // 2, now_ms=NOW_MS)
    is_empty = log.segments.active.size == 0  # then it begins where its name says
    close(log)
    reopened = new_log(disk, clean=True)
    wanted = log.segments.active.base_offset if is_empty else end // 2
    assert reopened.log_end_offset == wanted


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_damage_after_a_clean_stop_gives_only_kafka_errors(data: st.DataObject) -> None:
    """What the clean marker vouched for may be damaged: reported as an error, never a crash."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(12):
        send(log, 1, number)
    close(log)
    name = data.draw(st.sampled_from(disk.list("t-0")))
    place = data.draw(st.integers(0, disk.size(f"t-0/{name}")))
    disk.open(f"t-0/{name}").write_at(place, data.draw(st.binary(max_size=90)))
    with suppress(KafkaError):
        log = new_log(disk, clean=True)
        end = log.log_end_offset  # damage may have made it any number: see above
        for offset in (*range(min(end, 20)), end // 2, max(end - 1, 0)):
            log.reads.read(offset, 100)
        log.reads.offset_for_timestamp(NOW_MS)


@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_followers_refuse_garbage(data: bytes) -> None:
    """What a leader sends is batches or an error, and an error leaves the log as it was."""
    log = new_log()
    try:
        log.writes.append_as_follower(data, leader_epoch=1 << 30, now_ms=NOW_MS)
    except KafkaError:
        assert log.log_end_offset == 0
        assert log.size_bytes == 0
