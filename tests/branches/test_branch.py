"""Branches of a node's directory: shared segments, fork points, transactions, both sides live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.branches.branch import BranchRequest, BranchResult, DirectoryBranch
from ottla.branches.fork_point import ForkPoint
from ottla.errors import LocalDiskError
from ottla.server.system.files import RealDirectory
from ottla.storage.directories.log_dir import decode_meta_properties
from ottla.storage.layout import HIGH_WATERMARK_CHECKPOINT, META_PROPERTIES, METADATA_LOG
from ottla.types import TopicPartition, Uuid
from ottla.verification.metadata import read_metadata
from tests.storage.logs import NOW_MS, put
from tests.verification.damages import Served, find, sample, serve, start_log

if TYPE_CHECKING:
    from pathlib import Path

A = TopicPartition("a", 0)


@pytest.fixture
def root(tmp_path: Path) -> RealDirectory:
    """Write the files of a node that stopped cleanly into `source`."""
    directory = RealDirectory(str(tmp_path))
    for path, content in sample().items():
        (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        directory.write_file_atomically(f"source/{path}", content, sync=False)
    return directory


def fork(root: RealDirectory, target: str = "fork", **more: Any) -> BranchResult:
    request = BranchRequest("source", target)._replace(**more)
    return DirectoryBranch(root, request, now_ms=NOW_MS).run()


def at(root: RealDirectory, name: str) -> RealDirectory:
    return RealDirectory(f"{root.root}/{name}")


def test_a_branch_has_all_and_shares_the_segments(root: RealDirectory, tmp_path: Path) -> None:
    """Records, answers, epochs; nothing is to be repaired on either side."""
    before = serve(at(root, "source"))
    result = fork(root)
    assert (result.partition_count, result.copied_bytes) == (3, 0)
    after = serve(at(root, "fork"))
    for name in ("a-0", "c-0"):
        assert after[name] == before[name]
    assert after[METADATA_LOG] == before[METADATA_LOG]
    assert find(at(root, "source")) == find(at(root, "fork")) == []
    for path in (tmp_path / "source" / "a-0").glob("*.log"):
        size = path.stat().st_size
        assert path.stat().st_nlink == (2 if size else 1)
    fork(root, "again")  # of a last segment without records no file is shared: Kafka appends to it
    for name in ("source", "fork", "again"):
        last = max((tmp_path / name / "a-0").glob("*.log"))
        assert (last.stat().st_size, last.stat().st_nlink) == (0, 1)


def test_open_transactions_are_aborted_in_the_branch_alone(root: RealDirectory) -> None:
    """Its consumers read past them; the source's wait."""
    result = fork(root)
    assert result.aborted_count == 2
    forked, source = start_log(at(root, "fork"), "t-0"), start_log(at(root, "source"), "t-0")
    assert forked.log_end_offset == source.log_end_offset + 2
    assert forked.producer_state.transactions.open == []
    assert len(source.producer_state.transactions.open) == 2
    forked.release()
    source.release()


def test_neither_side_sees_what_the_other_does(root: RealDirectory) -> None:
    """Appends, and a truncation into shared segments, which copies."""
    before = serve(at(root, "source"))
    fork(root)
    forked = start_log(at(root, "fork"), "a-0")
    put(forked, 5)
    forked.release()
    assert serve(at(root, "source")) == before
    forked_before = serve(at(root, "fork"))["a-0"]
    source = start_log(at(root, "source"), "a-0")
    source.truncation.truncate_to(20, now_ms=NOW_MS)
    source.flushes.close_now()
    put(source, 3, timestamp=NOW_MS + 7)
    assert source.log_end_offset <= 23
    source.release()
    assert serve(at(root, "fork"))["a-0"] == forked_before


def test_segments_above_the_high_watermark_are_not_shared(
    root: RealDirectory, tmp_path: Path
) -> None:
    """A start as a follower cuts them: the loop of the node must not copy gigabytes then."""
    before = serve(at(root, "source"))["a-0"]
    text = root.read_file(f"source/{HIGH_WATERMARK_CHECKPOINT}").decode()
    changed = "\n".join("a 0 20" if line[:2] == "a " else line for line in text.split("\n"))
    root.write_file_atomically(f"source/{HIGH_WATERMARK_CHECKPOINT}", changed.encode())
    assert fork(root).copied_bytes > 0
    assert serve(at(root, "fork"))["a-0"] == before
    assert find(at(root, "fork")) == []
    logs = sorted((tmp_path / "source" / "a-0").glob("*.log"))
    ends = [int(log.stem) for log in logs[1:]]
    for log, end in zip(logs, ends, strict=False):
        assert log.stat().st_nlink == (2 if end <= 20 else 1)
    assert logs[-1].stat().st_nlink == 1


def test_a_fork_point_by_offset_and_by_time(root: RealDirectory) -> None:
    """Inside a segment, which is copied up to the point."""
    before = serve(at(root, "source"))["a-0"]
    assert isinstance(before, Served)
    result = fork(root, point=ForkPoint(offsets=((A, 50),)))
    assert result.copied_bytes > 0
    forked = start_log(at(root, "fork"), "a-0")
    assert 48 <= forked.log_end_offset <= 50
    forked.release()
    assert find(at(root, "fork")) == []
    fork(root, "earlier", point=ForkPoint(until_ms=NOW_MS + 30))
    served = serve(at(root, "earlier"))["a-0"]
    assert isinstance(served, Served)
    assert served.records == tuple(one for one in before.records if one[2] <= NOW_MS + 30)
    assert find(at(root, "earlier")) == []


def test_an_unclean_source(root: RealDirectory) -> None:
    """What a start would recover is copied up to its valid end."""
    before = serve(at(root, "source"))["a-0"]
    source = at(root, "source")
    source.remove(".kafka_cleanshutdown")
    last = [name for name in source.list("a-0") if name.endswith(".log")][-1]
    source.open(f"a-0/{last}").append([b"half a batch"])
    fork(root)
    assert serve(at(root, "fork"))["a-0"] == before
    assert find(at(root, "fork")) == []


def test_ids_and_topics(root: RealDirectory) -> None:
    """A branch can run alongside its source, with some of the topics."""
    new = Uuid(b"n" * 16)
    fork(root, topics=frozenset({"a"}), cluster_id="other", directory_id=new)
    meta = decode_meta_properties(root.read_file(f"fork/{META_PROPERTIES}"))
    assert (meta.cluster_id, meta.node_id, meta.directory_id) == ("other", 1, new)
    assert set(read_metadata(at(root, "fork")).image.topics.by_name) == {"a"}
    assert [name for name in root.list("fork") if name[1:] == "-0"] == ["a-0"]


def test_refusals(root: RealDirectory) -> None:
    """Nothing is left of a branch that cannot be made."""
    with pytest.raises(LocalDiskError, match="there is no topic unknown"):
        fork(root, topics=frozenset({"unknown"}))
    root.make("taken")
    with pytest.raises(LocalDiskError, match="taken exists"):
        fork(root, "taken")
    assert root.list() == ["source", "taken"]


def test_directories_of_others_are_not_forked(root: RealDirectory) -> None:
    """A branch takes what a start takes for a log, also where no metadata names the topics."""
    root.remove_tree(f"source/{METADATA_LOG}")
    root.make("source/backup-20261101")
    root.write_file_atomically("source/backup-20261101/server.log", b"started")
    assert fork(root).partition_count == 3
    assert "backup-20261101" not in root.list("fork")
