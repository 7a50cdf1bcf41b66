"""`ottla verify --tier`: each kind of damage of remote storage is found; sound files have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from ottla.cli.commands.verify import verify
from ottla.records.builder import encode_batch
from ottla.server.system.files import RealDirectory
from ottla.storage.layout import LOG_SUFFIX, SNAPSHOT_SUFFIX
from ottla.storage.producers.snapshot import encode_snapshot
from ottla.storage.remote.managers.directory import INDEX_SUFFIXES, ROOT, file_path
from ottla.storage.remote.records import METADATA_TOPIC, encode_remote_metadata
from ottla.storage.remote.segment import RemoteSegment, SegmentState
from ottla.types import Uuid
from ottla.verification.findings import Severity
from ottla.verification.tier import check_tier
from tests.storage.logs import NOW_MS
from tests.verification.damages import sample

if TYPE_CHECKING:
    from pathlib import Path

BATCH: Final = bytes(encode_batch([(NOW_MS, b"k", b"v", ())] * 3))
SEGMENT: Final = RemoteSegment(
    topic_id=Uuid(b"a" * 16),
    topic="a",
    partition=0,
    segment_id=Uuid(b"s" * 16),
    start_offset=0,
    end_offset=2,
    leader_epochs=((0, 0),),
    size_bytes=len(BATCH),
    max_timestamp_ms=NOW_MS,
    broker_id=1,
    event_timestamp_ms=NOW_MS,
    state=SegmentState.COPY_SEGMENT_FINISHED,
)
LOG: Final = file_path(SEGMENT, LOG_SUFFIX)


@pytest.fixture
def directories(tmp_path: Path) -> tuple[RealDirectory, RealDirectory]:
    """Write a node's metadata topic and a tier with one segment."""
    source, tier = (RealDirectory(str(tmp_path / name), create=True) for name in ("node", "tier"))
    source.make(f"{METADATA_TOPIC}-0")
    value = encode_batch([(NOW_MS, b"k", encode_remote_metadata(SEGMENT), ())])
    path = f"{METADATA_TOPIC}-0/00000000000000000000.log"
    source.write_file_atomically(path, value)
    contents = dict.fromkeys(INDEX_SUFFIXES.values(), b"")
    contents |= {
        LOG_SUFFIX: BATCH,
        ".leader_epoch_checkpoint": b"0\n1\n0 0\n",
        SNAPSHOT_SUFFIX: encode_snapshot([]),
    }
    tier.make(f"{ROOT}/{LOG.rpartition('/')[0]}")
    for suffix, content in contents.items():
        tier.write_file_atomically(f"{ROOT}/{file_path(SEGMENT, suffix)}", content)
    return source, tier


def test_sound_files_have_no_findings(directories: tuple[RealDirectory, RealDirectory]) -> None:
    """A missing transaction index is none: Kafka writes it where something was aborted."""
    source, tier = directories
    assert check_tier([source], tier) == []
    tier.remove(f"{ROOT}/{file_path(SEGMENT, '.txnindex')}")
    assert check_tier([source], tier) == []


@pytest.mark.parametrize(
    ("suffix", "content", "problem"),
    [
        (LOG_SUFFIX, None, "is missing"),
        (LOG_SUFFIX, BATCH[:-1], "the metadata has"),
        (LOG_SUFFIX, BATCH[:-1] + b"?", "is damaged at byte 0"),
        (".index", None, "is missing"),
        (".index", b"1234567", "not whole entries"),
        (".timeindex", b"1234567", "not whole entries"),
        (".txnindex", b"1234567", "not whole entries"),
        (".leader_epoch_checkpoint", b"0\n1\n0", ""),
        (SNAPSHOT_SUFFIX, b"??", ""),
    ],
)
def test_damage(
    directories: tuple[RealDirectory, RealDirectory],
    suffix: str,
    content: bytes | None,
    problem: str,
) -> None:
    """The file is named."""
    source, tier = directories
    path = f"{ROOT}/{file_path(SEGMENT, suffix)}"
    if content is None:
        tier.remove(path)
    else:
        tier.write_file_atomically(path, content)
    (finding,) = check_tier([source], tier)
    assert finding.severity is Severity.DAMAGE
    assert path in str(finding)
    assert problem in str(finding)


def test_the_command(directories: tuple[RealDirectory, RealDirectory]) -> None:
    """It prints damage of the tier and ends with 1."""
    source, tier = directories
    for path, content in sample().items():
        source.make(path.rpartition("/")[0])
        source.write_file_atomically(path, content, sync=False)
    tier.remove(f"{ROOT}/{LOG}")
    result = CliRunner().invoke(verify, [source.root, "--tier", tier.root, "--jobs", "1"])
    assert result.exit_code == 1
    assert LOG in result.output
    assert "is missing" in result.output
