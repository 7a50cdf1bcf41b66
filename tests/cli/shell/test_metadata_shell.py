"""`ottla metadata-shell` on a generated snapshot; tests/conformance compares it with Kafka's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla._version import __version__
from ottla.cli.shell.commands import ShellState, compiled, listing
from ottla.cli.shell.image_tree import root_of
from ottla.cli.shell.metadata_shell import completions, log_dir_locked, read_metadata, split_words
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.protocol.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from ottla.records.builder import encode_batch
from ottla.storage.layout import LOCK_FILE
from tests.cli.metadata_snapshot import TIME, A, B, quota, write_snapshot
from tests.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.protocol.schema import Struct


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Write a snapshot with every kind of node."""
    return write_snapshot(tmp_path)


@pytest.fixture
def state(snapshot: Path) -> ShellState:
    """Open the snapshot."""
    return ShellState(root_of(*read_metadata(snapshot, pytest.fail)))


def said(capsys: pytest.CaptureFixture[str], path: Path, *command: str) -> list[str]:
    """Run one command; return the lines that it prints."""
    status, out, err = run(capsys, "metadata-shell", "--snapshot", str(path), *command)
    assert (status, err) == (0, "")
    return out.splitlines()


def log_of(path: Path, *batches: list[Struct]) -> Path:
    """Write a log with these batches."""
    data = b""
    for number, batch in enumerate(batches):
        values = [encode_record(MessageAndVersion(record, 0)) for record in batch]
        records = [(TIME, None, value, ()) for value in values]
        data += encode_batch(records, base_offset=10 * number, leader_epoch=2)
    path.write_bytes(data)
    return path


def test_the_tree_has_every_kind_of_metadata(
    capsys: pytest.CaptureFixture[str], snapshot: Path
) -> None:
    """Every directory of /image has contents, and each is printed."""
    lines = said(capsys, snapshot, "tree", "/image")
    assert [line for line in lines if not line.startswith(" ")] == [
        "acls:",
        "clientQuotas:",
        "cluster:",
        "configs:",
        "delegationToken:",
        "features:",
        "producerIds:",
        "provenance:",
        "scram:",
        "topics:",
    ]
    assert "  offset 23, epoch 3, time 2023-11-14T22:13:20.12Z[UTC]" in lines
    assert "      1.23456785E7" in lines
    assert "  clientId(x)_user(a\\(b\\)\\\\c):" in lines


def test_the_version_is_that_of_the_shell(
    capsys: pytest.CaptureFixture[str], snapshot: Path
) -> None:
    """/local describes the shell, not the cluster."""
    assert said(capsys, snapshot, "cat", "/local/version") == [__version__]


def test_paths_may_be_patterns(capsys: pytest.CaptureFixture[str], snapshot: Path) -> None:
    """`*`, `?` and groups match children; brackets stand for themselves."""
    assert said(capsys, snapshot, "cat", "image/topics/by{Name,Id}/*/name") == [
        "orders",
        "[x]",
        "[x]",
        "orders",
    ]
    assert said(capsys, snapshot, "cat", "image/topics/byName/[x]/id") == [str(B)]
    assert said(capsys, snapshot, "find", "/image/t?pics/byName/[o]rders") == [
        "find: /image/t?pics/byName/[o]rders: no such file or directory."
    ]


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("a*", ["abc", "abd"]),
        ("a?c", ["abc"]),
        ("{a,b}c", ["bc"]),
        ("*.c", []),
        ("*c", ["abc", "bc"]),
    ],
)
def test_one_component(glob: str, names: list[str]) -> None:
    """A component matches whole names."""
    pattern = compiled(glob)
    assert pattern is not None
    assert [name for name in ("abc", "abd", "bc") if pattern.fullmatch(name)] == names


@pytest.mark.parametrize("glob", ["plain", "{a", "{a{b}}", "a}", "\\*", "a,b"])
def test_components_that_name_only_themselves(glob: str) -> None:
    """Without a wildcard, or with an open group, a component is a name."""
    assert compiled(glob) is None


def test_a_log_is_read_without_what_was_aborted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An aborted transaction leaves nothing; records that cannot be applied are reported."""
    path = log_of(
        tmp_path / "00000000000000000000.log",
        [TopicRecord(name="kept", topic_id=A)],
        [BeginTransactionRecord(), TopicRecord(name="gone", topic_id=B), AbortTransactionRecord()],
        [PartitionChangeRecord(partition_id=0, topic_id=B)],
    )
    status, out, err = run(capsys, "metadata-shell", "-s", str(path), "ls", "image/topics/byName")
    assert (status, out) == (0, "kept\n")
    assert err.startswith("WARN the record at offset 20 was not applied: Unable to find topic")
    assert (
        "offset 20, epoch 2"
        in run(capsys, "metadata-shell", "-s", str(path), "cat", "image/provenance")[1]
    )


def test_a_used_directory_is_refused(capsys: pytest.CaptureFixture[str], snapshot: Path) -> None:
    """While a node holds the lock of the log directory the files change."""
    (snapshot.parent.parent / LOCK_FILE).touch()
    with log_dir_locked(snapshot):
        status, _, err = run(capsys, "metadata-shell", "-s", str(snapshot), "ls")
    assert status == 1
    assert err.startswith("Unexpected error: Unable to lock ")
    assert said(capsys, snapshot, "ls") == ["image", "local"]


@pytest.mark.parametrize("content", [b"\0" * 200, b"not a log at all, but long enough to be one"])
def test_a_file_that_is_no_log_is_refused(
    content: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The error names the file; Kafka's tool waits forever."""
    path = tmp_path / "x.checkpoint"
    path.write_bytes(content)
    status, out, err = run(capsys, "metadata-shell", "-s", str(path), "ls")
    assert (status, out) == (1, "")
    assert str(path) in err


def test_the_quota_of_a_default_entity_has_no_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As in Kafka it leads nowhere, and `find` ends with an error."""
    path = write_snapshot(tmp_path, quota("consumer_byte_rate", 5.0, user=None))
    assert ":" in said(capsys, path, "tree", "/image/clientQuotas")
    status, _, err = run(capsys, "metadata-shell", "-s", str(path), "find", "/image/clientQuotas")
    assert status == 1
    assert err == (
        "Unexpected error: Expected  to be a valid child of /image/clientQuotas, but it was not.\n"
    )


def test_words_of_a_line() -> None:
    """Quotes around a word and backslashes keep blanks; quotes inside a word stay."""
    assert split_words('cat  \'a b\' "c\'d" e\\ f g"h"i \\* ') == [
        "cat",
        "a b",
        "c'd",
        "e f",
        'g"h"i',
        "*",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("h", ["help ", "history "]),
        ("man t", ["tree "]),
        ("ls im", ["image/"]),
        ("cat /image/features/m", ["/image/features/metadataVersion "]),
        ("cd image/topics/by", ["image/topics/byId/", "image/topics/byName/"]),
        ("cat nosuch/x", []),
        ("pwd ", []),
    ],
)
def test_completion(line: str, expected: list[str], state: ShellState) -> None:
    """The tab key completes commands and paths; directories end in a slash."""
    assert completions(line, state) == expected


def test_names_in_columns() -> None:
    """On a terminal `ls` fills columns from top to bottom."""
    names = ["a", "bb", "ccc", "d", "e"]
    assert list(listing([], [("x", names)], 12)) == ["a   ccc  e", "bb  d    "]
    assert list(listing([], [("x", names)], 11)) == ["a    d", "bb   e", "ccc  "]
    assert list(listing(["f"], [("x", ["a"])], None)) == ["f", "\nx:", "a"]
