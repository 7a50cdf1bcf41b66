"""Scans of log directories whose older segments are in remote storage alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla import tables
from ottla.errors import CorruptMessage, KafkaError
from ottla.tables import partition_files
from ottla.testing.cluster import Cluster
from tests.server.remote.test_tier import RECORDS, copied, fill, settings_of, until_copied

if TYPE_CHECKING:
    from pathlib import Path


def values(path: Path, **arguments: object) -> list[int]:
    """Return the numbers at the beginning of the values."""
    found = tables.scan("t", data_dirs=path / "data", **arguments).to_arrow()  # type: ignore[arg-type]
    return [int(value[:6]) for value in found["value"].to_pylist()]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a stopped node's directory, and its tier."""
    path = tmp_path_factory.mktemp("tier")
    with Cluster(config=settings_of(path / "tier"), data_dir=str(path / "data")) as cluster:
        fill(cluster)
        assert until_copied(cluster)[1] > 1000
    return path


def test_remote_segments_are_read(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before the first local one; only the segments in question."""
    tier = stored / "tier"
    assert values(stored, tier=tier) == list(range(RECORDS))
    local = values(stored)
    assert local == list(range(local[0], RECORDS))
    assert local[0] > 1000
    sizes = []
    real = partition_files.FileReader._remote_chunks

    def noted(self: partition_files.FileReader, segment: object, first: int) -> object:
        sizes.append(segment)
        return real(self, segment, first)  # type: ignore[arg-type]

    monkeypatch.setattr(partition_files.FileReader, "_remote_chunks", noted)
    assert values(stored, tier=tier, start_offset=5, end_offset=9) == [5, 6, 7, 8]
    assert len(sizes) == 1
    assert values(stored, tier=tier, start_offset=RECORDS - 3) == list(range(RECORDS))[-3:]
    assert len(sizes) == 1
    times = tables.scan("t", data_dirs=stored / "data", tier=tier, columns=["timestamp"])
    first = times.to_arrow()["timestamp"].to_pylist()[0]
    assert values(stored, tier=tier, start_time=first, limit=2) == [0, 1]
    assert tables.scan("t", data_dirs=stored / "data", tier=tier, as_of=1).ranges == []


def test_a_tier_that_lies_is_not_served(stored: Path) -> None:
    """Another length, other bytes, no file, no directory."""
    tier = stored / "tier"
    segment = copied(tier)[0]
    content = segment.read_bytes()
    changed = bytearray(content)
    changed[-1] ^= 1
    try:
        segment.write_bytes(content[:-1])
        with pytest.raises(KafkaError, match=r"remote storage: .* bytes, and had"):
            values(stored, tier=tier)
        segment.write_bytes(bytes(changed))
        with pytest.raises(CorruptMessage, match="stored crc"):
            values(stored, tier=tier)
        segment.unlink()
        with pytest.raises(KafkaError, match="remote storage has no"):
            values(stored, tier=tier)
    finally:
        segment.write_bytes(content)
    with pytest.raises(KafkaError, match="no such directory"):
        values(stored, tier=stored / "absent")
    with pytest.raises(KafkaError, match="url must begin with one of"):
        values(stored, tier="ftp://host/x")
    assert os.listdir(tier)  # noqa: PTH208


def test_an_abort_whose_marker_is_in_a_later_remote_segment(tmp_path: Path) -> None:
    """Its index is read for a range that ends before that segment, too."""
    with Cluster(config=settings_of(tmp_path / "tier"), data_dir=str(tmp_path / "data")) as cluster:
        fill(cluster)
        servers = cluster.bootstrap
        with (
            ottla.Producer(bootstrap_servers=servers, transactional_id="aborting") as aborting,
            ottla.Producer(bootstrap_servers=servers) as producer,
        ):
            aborting.init_transactions()
            aborting.begin_transaction()
            aborting.send("t", b"-00001", partition=0)
            aborting.flush()
            for _ in range(2 * RECORDS):
                producer.send("t", b"000000" + b"x" * 994, partition=0)
            producer.flush()
            aborting.abort_transaction()
            for _ in range(RECORDS):
                producer.send("t", b"000000" + b"x" * 994, partition=0)
        assert until_copied(cluster)[1] > 3 * RECORDS
    limits: dict[str, object] = {"start_offset": RECORDS - 1, "end_offset": RECORDS + 1}
    assert values(tmp_path, tier=tmp_path / "tier", **limits) == [RECORDS - 1]
    limits["isolation"] = "read_uncommitted"
    assert values(tmp_path, tier=tmp_path / "tier", **limits) == [RECORDS - 1, -1]
