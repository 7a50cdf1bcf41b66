"""Decisions in the metadata of offsets, and what is read from a checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ottla.errors import KafkaError
from ottla.spark.checkpoint import Checkpoint
from ottla.spark.decision import PART_BYTES, BatchDecision, Participant, decode, encode
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path


def places(*counts: int) -> list[TopicPartition]:
    """Return the partitions of topics, in the order of their names."""
    return [
        TopicPartition(f"t{number}", index)
        for number, count in enumerate(counts)
        for index in range(count)
    ]


MANY = tuple(Participant(f"group-task-12345678-0-{i}-0.0", 10_000 + i, 7) for i in range(150))


@pytest.mark.parametrize("count", [0, 1, 60, 150])
def test_participants_are_spread_over_partitions(count: int) -> None:
    """Each part within a broker's limit; every partition names the batch."""
    decision = BatchDecision("q", 12, MANY[:count])
    texts = list(encode(decision, places(5)).values())
    assert len(texts) == 5
    assert max(map(len, texts)) <= PART_BYTES + 100 < 4096
    assert {json.loads(text)["batch"] for text in texts} == {12}
    assert decode("q", reversed(texts)) == decision


@pytest.mark.parametrize("digest", [None, 0, (1 << 64) - 1])
@pytest.mark.parametrize("sources", [None, (1 << 64) - 1])
def test_the_digests_are_kept(digest: int | None, sources: int | None) -> None:
    """They are of the last batch, and none of a query, or an earlier version, that has none."""
    query = "9b1c2f0e-63a5-4d0c-8f1e-2f9a5a1d7c33"
    old = BatchDecision(query, 3, MANY[:1], 7, 8)
    new = BatchDecision(query, 1 << 40, MANY[:150], digest, sources)
    texts = [*encode(old, places(6)).values(), *encode(new, places(5)).values()]
    assert decode(query, texts) == new
    assert max(map(len, texts)) < 4096


def test_too_many_participants_are_refused() -> None:
    """Before anything is decided."""
    with pytest.raises(KafkaError, match="use fewer tasks"):
        encode(BatchDecision("q", 1, MANY), places(1))


@pytest.mark.parametrize("count", [0, 60, 150])
def test_a_decision_outlives_a_topic(count: int) -> None:
    """The group's offsets of a deleted topic are deleted with it."""
    decision = BatchDecision("q", 12, MANY[:count])
    found = encode(decision, places(4, 4, 4, 4))
    for gone in ("t0", "t1", "t2", "t3"):
        left = [text for place, text in found.items() if place.topic != gone]
        assert decode("q", left) == decision


def test_a_decision_has_few_copies() -> None:
    """A request with the offsets of many topics keeps its size."""
    found = encode(BatchDecision("q", 12, MANY[:40]), places(*[1] * 1000))
    assert sum(map(len, found.values())) < 1000 * 40 + 4 * PART_BYTES


def test_the_last_batch_counts() -> None:
    """Partitions that a source has left keep an older batch; foreign metadata say nothing."""
    old, new = BatchDecision("q", 3, MANY[:2]), BatchDecision("q", 4, MANY[2:5])
    texts = [*encode(old, places(3)).values(), *encode(new, places(2)).values()]
    found = [*texts, None, "", "by hand", "[1]", '{"batch": "x"}']
    assert decode("q", found) == new
    assert decode("q", [None, "by hand"]) is None


def test_a_missing_part_is_an_error() -> None:
    """Offsets were reset or deleted: what was decided cannot be known."""
    texts = list(encode(BatchDecision("q", 4, MANY), places(5)).values())
    with pytest.raises(KafkaError, match="part of the decision on batch 4 is missing"):
        decode("q", texts[1:])
    with pytest.raises(KafkaError, match="another checkpoint"):
        decode("other", texts)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_checkpoint_is_read(tmp_path: Path, scheme: str) -> None:
    """Its id, the last batch that Spark noted, the offsets of this project's sources alone."""
    (tmp_path / "metadata").write_text('{"id":"1-2"}')
    checkpoint = Checkpoint(f"{scheme}{tmp_path}")
    assert (checkpoint.query_id(), checkpoint.last_committed_batch()) == ("1-2", -1)
    for name in ("commits", "offsets"):
        (tmp_path / name).mkdir()
    (tmp_path / "commits" / "9").write_text("v1")
    (tmp_path / "commits" / "10").write_text("v1")
    (tmp_path / "commits" / ".10.crc").write_text("x")
    lines = [
        "v1",
        '{"batchWatermarkMs":0}',
        '{"a":{"id":"x","0":5,"1":7}}',
        "-",
        '{"kafka":{"0":5}}',
        "17",
    ]
    (tmp_path / "offsets" / "10").write_text("\n".join(lines))
    assert checkpoint.last_committed_batch() == 10
    (found,) = checkpoint.source_offsets(10)
    assert found.positions == {TopicPartition("a", 0): 5, TopicPartition("a", 1): 7}


def test_a_batch_may_be_planned_before_the_first_topic(tmp_path: Path) -> None:
    """Of all sources, this project's among them; others may not be in the batch."""
    checkpoint = Checkpoint(str(tmp_path))
    (tmp_path / "offsets").mkdir()

    def is_without(*sources: str) -> bool:
        (tmp_path / "offsets" / "0").write_text("\n".join(["v1", "{}", *sources]))
        return checkpoint.is_without_partitions(0)

    assert is_without("{}")
    assert is_without("-", "{}")
    assert not is_without()
    assert not is_without("-")
    assert not is_without("{}", "17")
    assert not is_without("{}", '{"a":{"id":"x","0":5}}')


def test_a_checkpoint_out_of_reach_is_named() -> None:
    """With what to do about it."""
    with pytest.raises(KafkaError, match="exactlyOnce=false does without"):
        Checkpoint("dbfs://nowhere/checkpoint")
