"""A standby controller replays what is committed; one that stops leading goes back to that."""

from __future__ import annotations

import pytest

from ottla.controller import runtime
from ottla.errors import ErrorCode
from ottla.metadata.framing import encode_record
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.types import OffsetAndEpoch
from tests.controller.harness import Harness, topic


def test_uncommitted_operations_are_reverted() -> None:
    """The state after a resignation is that of the last commit; the operation fails."""
    harness = Harness().bring_up()
    harness.create("kept")
    runtime = harness.node._runtime
    committed = runtime.driver.node.high_watermark
    pending = harness.send(CreateTopicsRequest(topics=[topic("lost")]))
    assert runtime.controller.topics.by_name("lost") is not None
    runtime.resigned(1)
    assert pending.error is not None
    assert pending.error.code is ErrorCode.NOT_CONTROLLER  # type: ignore[attr-defined]
    assert runtime.controller.topics.by_name("lost") is None
    assert runtime.controller.topics.by_name("kept") is not None
    assert runtime._replayed.committed_offset == committed - 1


def test_a_standby_replays_what_others_commit() -> None:
    """Another controller with the same log has the same state, and its image is published."""
    active = Harness().bring_up()
    active.create("t")
    active.node.stop()
    standby = Harness(active.disk)
    standby.run_turn()
    assert standby.node._runtime.controller.topics.by_name("t") is not None
    assert [encode_record(one) for one in standby.image.records()][:12] == [
        encode_record(one) for one in active.image.records()
    ][:12]


def test_a_running_controller_continues_from_a_snapshot() -> None:
    """What the snapshot lacks is removed from state and image; listeners hear of it."""
    active = Harness().bring_up()
    active.create("old")
    other = Harness().bring_up()
    other.create("old")
    other.create("new")
    other.ask(DeleteTopicsRequest(topic_names=["old"], timeout_ms=1))
    replayed = active.node._runtime._replayed
    replayed.end_epoch()
    told: list[str] = []
    active.node.add_listener(
        lambda delta, _image: told.extend(one.name for one in delta.topics_deleted.values())
    )
    end = OffsetAndEpoch(replayed.committed_offset + 50, 3)
    values = [encode_record(one) for one in other.image.records()]
    for _ in replayed.load_snapshot(values, end):
        assert told == [], "nothing is changed before all of it is known"
    replayed.publish(is_complete=True)
    controller = active.node._runtime.controller
    assert controller.topics.by_name("old") is None
    assert controller.topics.by_name("new") is not None
    assert told == ["old"]
    assert replayed.committed_offset == end.offset - 1
    assert sorted(values) == sorted(encode_record(one) for one in active.image.records())


def test_a_snapshot_that_cannot_be_encoded_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is written when it is due."""
    harness = Harness().bring_up()
    snapshots = harness.node._runtime.snapshots
    harness.node._runtime._replayed.snapshots.max_bytes = 0  # always due
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "encode_record", _fail)
        with pytest.raises(RuntimeError, match="planted"):
            snapshots.write_if_due()
    assert not harness.node._runtime.driver.log.snapshots
    snapshots.write_if_due()
    harness.run_turn()
    assert harness.node._runtime.driver.log.snapshots


def _fail(_record: object) -> bytes:
    raise RuntimeError("planted")


def test_after_reverting_it_leads_again() -> None:
    """A controller that resigned and replayed takes operations in its next epoch."""
    harness = Harness().bring_up()
    harness.create("t")
    runtime = harness.node._runtime
    runtime.resigned(1)
    assert not harness.node.active
    runtime.became_leader(runtime.driver.node.epoch, runtime.driver.node.next_offset - 1)
    harness.run_turn()
    assert (
        harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)).responses[0].error_code
        == 0
    )
