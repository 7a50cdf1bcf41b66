"""The commands and the program of docs/tables.md; its lines for Spark are as in tests/spark."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.records.builder import encode_batch
from ottla.storage.directories.checkpoints import encode_offsets
from ottla.types import TopicPartition
from tests.cli.running import run

pytest.importorskip("duckdb")

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
TIME = 1_767_225_600_000


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the topic of the page, 500 records in each of two partitions, and go there."""
    for partition in (0, 1):
        log = tmp_path / "ottla-data" / f"orders-{partition}"
        log.mkdir(parents=True)
        rows = [
            (
                TIME + n * 60_000,
                b"u%d" % (n % 3),
                b'{"id":%d,"user":"u%d","amount":%d.5}' % (n, n % 3, n % 10),
                (),
            )
            for n in range(partition, 1000, 2)
        ]
        (log / f"{0:020d}.log").write_bytes(encode_batch(rows))
    offsets = encode_offsets({TopicPartition("orders", n): 500 for n in (0, 1)})
    (tmp_path / "ottla-data" / "replication-offset-checkpoint").write_bytes(offsets)
    monkeypatch.chdir(tmp_path)


def blocks(kind: str) -> list[str]:
    """Return the blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def commands() -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words of each command, and the lines that it prints."""
    for block in blocks("text"):
        for part in block.replace("\\\n", "").split("$ ")[1:]:
            command, _, shown = part.partition("\n")
            yield shlex.split(command, comments=True), shown.strip().splitlines()


def test_sql(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command prints what the page shows; that for brokers is run on the files."""
    count = 0
    for words, shown in commands():
        if words[:2] == ["ottla", "sql"]:
            text = shlex.join(words[1:]).replace(
                "--bootstrap-server localhost:9092", "--dir ottla-data"
            )
            status, printed, _ = run(capsys, *shlex.split(text))
            assert status == 0
            assert [line.split() for line in printed.splitlines()] == [
                line.split() for line in shown
            ]
            count += 1
    assert count == 3


def test_sync(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The rows and offsets of each commit are those of the page."""
    pytest.importorskip("pyiceberg")
    words, shown = next(one for one in commands() if one[0][:3] == ["ottla", "tables", "sync"])
    status, printed, _ = run(
        capsys, *[word.replace("/data", str(tmp_path), 1) for word in words[1:]]
    )
    assert status == 0
    assert [line.partition(" in ")[0] for line in printed.splitlines()] == [
        line.partition(" in ")[0] for line in shown
    ]


def test_frames() -> None:
    """The first program runs."""
    names: dict[str, object] = {}
    exec(blocks("python")[0], names)
    assert names["batch"].num_rows > 0  # type: ignore[attr-defined]
