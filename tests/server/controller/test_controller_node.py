"""The controller over its log: commits, crashes, restarts, snapshots."""

from __future__ import annotations

import errno
import json
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode, KafkaError, UnsupportedVersion
from ottla.metadata.framing import encode_record
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.snapshot import decode_snapshot, snapshot_name
from ottla.records.builder import encode_batch
from ottla.storage.layout import METADATA_LOG
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from tests.controller.harness import Harness, topic

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage


def _values(harness: Harness) -> list[bytes]:
    return [encode_record(record) for record in harness.image.records()]


def test_a_new_cluster_begins_with_its_features() -> None:
    """The first commit holds the bootstrap records, and the image has their levels."""
    harness = Harness()
    assert not harness.node.active, "it leads when its vote and its leadership are on disk"
    assert harness.node.quorum.high_watermark == -1
    assert not harness.image.features.levels
    harness.run_turn()
    assert harness.image.features.metadata_version == 30
    assert harness.image.configs.broker("") == {"min.insync.replicas": "1"}
    assert harness.node.quorum.high_watermark == harness.node.quorum.log_end_offset == 10
    assert (harness.node.quorum.leader_id, harness.node.quorum.leader_epoch) == (1, 1)
    state = json.loads(harness.disk.read_file(f"{METADATA_LOG}/quorum-state"))
    assert (state["leaderId"], state["leaderEpoch"]) == (1, 1)


def test_nothing_is_answered_before_it_is_durable() -> None:
    """The answer and the image wait for the flush; the next decision does not."""
    harness = Harness().bring_up()
    first = harness.send(CreateTopicsRequest(topics=[topic("t")]))
    second = harness.send(CreateTopicsRequest(topics=[topic("t")]))
    assert not first.done
    assert not second.done
    assert "t" not in harness.image.topics.by_name
    harness.run_turn()
    assert first.value.topics[0].error_code == ErrorCode.NONE
    assert second.value.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "t" in harness.image.topics.by_name


def test_a_burst_shares_its_flushes() -> None:
    """A thousand operations between two flushes cost two of them."""
    harness = Harness().bring_up()
    before = harness.flushes
    answers = [
        harness.send(CreateTopicsRequest(topics=[topic(f"t{number}")])) for number in range(1000)
    ]
    harness.run_turn()
    assert all(answer.value.topics[0].error_code == 0 for answer in answers)
    assert harness.flushes - before == 2


def test_a_restart_finds_the_same_image() -> None:
    """State rebuilt from the log equals the live state, in a later epoch."""
    harness = Harness().bring_up()
    for number in range(5):
        harness.create(f"t{number}", 3, retention_ms="1000")
    values, epoch = _values(harness), harness.node.quorum.leader_epoch
    harness.node.stop()
    harness.start()
    assert not harness.image.topics.by_id, "nothing is shown before the new epoch has committed"
    harness.run_turn()
    assert _values(harness) == values
    assert harness.node.quorum.leader_epoch == epoch + 1


def test_a_snapshot_stands_for_the_log() -> None:
    """After a snapshot the log may begin behind it, and a restart needs nothing else."""
    harness = Harness(metadata_max_retention_bytes="1").bring_up()
    harness.create("t", 5)
    snapshot_id = harness.node._runtime.snapshots.write()
    harness.run_turn()
    harness.create("u")
    values = _values(harness)
    harness.node.stop()
    log = ReplicatedLog.open(harness.disk, now_ms=0)
    assert log.snapshots == [snapshot_id]
    assert log.start_offset == snapshot_id.offset
    harness.start()
    harness.run_turn()
    assert _values(harness) == values


@pytest.mark.parametrize("is_active", [True, False])
def test_each_member_removes_the_files_of_deleted_segments(*, is_active: bool) -> None:
    """After file.delete.delay.ms, in a worker: a standby kept them until it was started again."""
    harness = Harness(metadata_max_retention_bytes="1").bring_up()
    for name in ("t", "u"):
        harness.create(name)
        harness.node._runtime.snapshots.write()
        harness.run_turn()

    def deleted() -> list[str]:
        return [name for name in harness.disk.list(METADATA_LOG) if name.endswith(".deleted")]

    if not is_active:
        harness.node.resign()
        harness.run_turn()
    assert harness.node.active == is_active
    before = deleted()
    assert any(".log" in name for name in before)
    assert any(".snapshot" in name for name in before)
    harness.clock.ms += 60_000
    harness.node.tick(harness.clock.ms)
    assert deleted() == before
    harness.run_turn()
    assert deleted() == []


def test_a_large_snapshot_is_of_one_moment() -> None:
    """It is encoded in many turns, between which topics, partitions and settings change."""
    harness = Harness(metadata_max_retention_bytes="1").bring_up()
    for number in range(20):
        harness.create(f"t{number}", 50, retention_ms="1000")
    values = _values(harness)
    snapshot_id = harness.node._runtime.snapshots.write()
    path, shown = f"{METADATA_LOG}/{snapshot_name(snapshot_id)}", []
    names = DeleteTopicsRequest(topic_names=["t5", "t15"], timeout_ms=5)
    harness.send(CreateTopicsRequest(topics=[topic("u", 2, retention_ms="5")]))
    harness.send(names)
    while not harness.disk.exists(path):
        shown.append(_values(harness) == values)
        job, done = harness.jobs.pop(0)
        done(job(), None)
    assert shown[:2] == [True, True]
    assert not shown[-2], "the image changed before the last slice"
    assert decode_snapshot(harness.disk.read_file(path)).values == values


def test_snapshots_come_by_themselves() -> None:
    """metadata.log.max.record.bytes.between.snapshots bytes of records make one due."""
    harness = Harness(metadata_log_max_record_bytes_between_snapshots="20000").bring_up()
    for number in range(200):
        harness.create(f"t{number}")
    names = [n for n in harness.disk.list(METADATA_LOG) if n.endswith(".checkpoint")]
    assert 1 <= len(names) <= 3


@pytest.mark.parametrize("in_worker", [True, False])
def test_a_commit_waits_for_descriptors(
    monkeypatch: pytest.MonkeyPatch, *, in_worker: bool
) -> None:
    """A flush that finds none is done again with a later tick; nothing halts, nothing is lost."""
    harness = Harness().bring_up()
    if in_worker:
        harness.disk.fail(lambda call: call.kind == "sync", errno.EMFILE)
    else:
        monkeypatch.setattr(ReplicatedLog, "start_flush", lambda *_: None)
    pending = harness.send(CreateTopicsRequest(topics=[topic("t")]))
    harness.run_turn()
    assert not pending.done
    assert not harness.failures
    harness.disk.heal()
    monkeypatch.undo()
    harness.node.tick(harness.clock.ms)
    harness.run_turn()
    assert pending.value.topics[0].error_code == 0
    assert "t" in harness.image.topics.by_name


def test_a_stop_ends_when_the_last_flush_fails(caplog: pytest.LogCaptureFixture) -> None:
    """It is said, the descriptors are given back, and the node closes its other logs."""
    harness = Harness().bring_up()
    harness.send(CreateTopicsRequest(topics=[topic("t")]))
    harness.disk.fail(lambda call: call.kind == "sync" and METADATA_LOG in call.path, times=9)
    harness.node.stop()
    assert "metadata log: Error while flushing" in caplog.text
    harness.node.stop()


def test_a_snapshot_waits_for_descriptors() -> None:
    """A process that ran out of descriptors has a healthy disk: the node goes on without it."""
    harness = Harness().bring_up()
    harness.create("t", 5)
    harness.disk.fail(lambda call: ".checkpoint" in call.path, errno.EMFILE)
    harness.node._runtime.snapshots.write()
    harness.run_turn()
    harness.create("u")
    assert not [n for n in harness.disk.list(METADATA_LOG) if n.endswith(".checkpoint")]
    snapshot_id = harness.node._runtime.snapshots.write()
    harness.run_turn()
    values = _values(harness)
    harness.node.stop()
    assert ReplicatedLog.open(harness.disk, now_ms=0).snapshots == [snapshot_id]
    harness.start()
    harness.run_turn()
    assert _values(harness) == values


def test_idle_logs_move_on() -> None:
    """A NoOp every metadata.max.idle.interval.ms when nothing else is written."""
    harness = Harness().bring_up()
    end = harness.node.quorum.log_end_offset
    deadline = harness.node.tick(harness.clock.ms)
    assert deadline == harness.clock.ms + 500
    harness.clock.ms += 500
    harness.node.tick(harness.clock.ms)
    harness.run_turn()
    assert harness.node.quorum.log_end_offset == end + 1
    assert harness.image.offset_and_epoch.offset == end


def test_a_failed_flush_ends_everything() -> None:
    """After a failed fsync nothing is promised: answers fail, the node is told, once."""
    harness = Harness().bring_up()
    harness.disk.fail(lambda call: call.kind == "sync" and call.path.endswith(".log"))
    answer = harness.send(CreateTopicsRequest(topics=[topic("t")]))
    harness.run_turn()
    with pytest.raises(KafkaError) as caught:
        _ = answer.value
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(harness.failures) == 1
    assert not harness.node.active
    later = harness.send(CreateTopicsRequest(topics=[topic("u")]))
    assert isinstance(later.error, KafkaError)
    assert later.error.code == ErrorCode.NOT_CONTROLLER


def test_a_listener_that_fails_stops_no_one_else() -> None:
    """The log goes on and the next listener hears of it."""
    harness = Harness()
    heard: list[bool] = []

    def fail(_delta: MetadataDelta, _image: MetadataImage) -> None:
        raise ValueError("broken")

    harness.node.add_listener(fail)
    harness.node.add_listener(lambda delta, _image: heard.append(delta.is_snapshot))
    harness.bring_up()
    assert harness.create("t").error_code == 0
    assert heard[0]
    assert len(heard) > 1


def test_an_unknown_record_stops_the_start() -> None:
    """A kind that is newer than we are is never skipped."""
    harness = Harness().bring_up()
    harness.node.stop()
    log = ReplicatedLog.open(harness.disk, now_ms=0)
    value = b"\x01\x63\x00\x00"
    data = encode_batch([(0, None, value, ())], base_offset=log.end_offset, leader_epoch=1)
    log.append(data, epoch=1, now_ms=0)
    harness.start()
    harness.run_turn()
    assert isinstance(harness.failures[0], UnsupportedVersion)
    assert not harness.node.active


def described_topics(*names: str) -> DescribeQuorumRequest:
    """Ask for partition 0 of these topics."""
    struct = DescribeQuorumRequest.TopicData
    partitions = [struct.PartitionData(partition_index=0)]
    return DescribeQuorumRequest(
        topics=[struct(topic_name=name, partitions=partitions) for name in names]
    )


def test_the_quorum_describes_itself() -> None:
    """DescribeQuorum tells leader, voters and addresses to who asks for the metadata log."""
    harness = Harness().bring_up()
    request = described_topics("__cluster_metadata")
    answer = harness.ask(request)
    known = answer.topics[0].partitions[0]
    assert (known.leader_id, known.leader_epoch) == (1, 1)
    assert known.high_watermark == harness.node.quorum.log_end_offset
    assert [voter.replica_id for voter in known.current_voters] == [1]
    assert answer.nodes[0].listeners[0].port == 9093


def test_the_quorum_is_told_alone() -> None:
    """Who asks for another topic as well learns nothing, as in Kafka."""
    harness = Harness().bring_up()
    request = described_topics("__cluster_metadata", "other")
    answer = harness.ask(request)
    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert answer.nodes == []


@pytest.mark.parametrize("seed", range(25))
def test_what_was_answered_survives_a_power_cut(seed: int) -> None:
    """Whatever call the power fails in, an acknowledged topic is there afterwards."""
    rng = random.Random(seed)
    disk = SimulatedDisk(seed)
    harness = Harness(disk).bring_up()
    acknowledged: set[str] = set()
    for round_number in range(3):
        disk.crash_at(disk.calls + rng.randrange(1, 40))
        try:
            for number in range(20):
                name = f"t{round_number}-{number}"
                if harness.create(name).error_code == 0:
                    acknowledged.add(name)
        except SimulatedCrash:
            pass
        disk.heal()
        disk.crash()
        harness.start()
        harness.run_turn()
        assert not harness.failures
        assert acknowledged <= set(harness.image.topics.by_name)
        harness.clock.ms += harness.config.broker_session_timeout_ms
        harness.bring_up()


@pytest.mark.parametrize("seed", range(30))
def test_the_log_is_only_let_go_when_its_snapshot_is_durable(seed: int) -> None:
    """A power cut while the log is cut, or after it, finds all of it in the snapshot."""
    disk = SimulatedDisk(seed)
    harness = Harness(disk, metadata_max_retention_bytes="1").bring_up()
    for number in range(5):
        harness.create(f"t{number}")
    disk.crash_at(disk.calls + 1 + seed)
    names = {f"t{number}" for number in range(5)}
    with suppress(SimulatedCrash):
        harness.node._runtime.snapshots.write()
        harness.run_turn()
        harness.clock.ms += 500
        harness.node.tick(harness.clock.ms)
        harness.run_turn()
        harness.clock.ms += 120_000
        harness.node.tick(harness.clock.ms)
        harness.run_turn()
    disk.heal()
    disk.crash()
    harness.start()
    harness.run_turn()
    assert set(harness.image.topics.by_name) == names
