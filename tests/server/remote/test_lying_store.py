"""A store that has other than what was copied: never served as data, named once in the log."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import ottla
from ottla.testing import Cluster
from tests.server.remote.test_tier import (
    RECORDS,
    copied,
    fill,
    lines,
    read_all,
    settings_of,
    until_copied,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def _exchange(path: Path) -> None:
    path.write_bytes(bytes(reversed(path.read_bytes())))


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)


def _link_elsewhere(path: Path) -> None:
    other = path.with_name("elsewhere")
    other.write_bytes(b"?" * path.stat().st_size)
    path.unlink()
    path.symlink_to(other)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: list[Callable[[Path], None]] = [
    _cut,
    _lengthen,
    _exchange,
    _flip,
    _link_elsewhere,
    _empty,
    lambda path: path.unlink(),
]
LOST_INDEXES: list[tuple[str, Callable[[Path], None]]] = [
    (".index", lambda path: path.unlink()),
    (".index", _lengthen),
    (".timeindex", lambda path: path.unlink()),
    (".timeindex", _lengthen),
]


def _poll(cluster: Cluster, offset: int) -> list[int]:
    """Poll a few times from an offset on; return the offsets that came."""
    at, found = ottla.TopicPartition("t", 0), []
    with ottla.Consumer(
        bootstrap_servers=cluster.bootstrap, max_partition_fetch_bytes=2000
    ) as consumer:
        consumer.assign([at])
        consumer.seek(at, offset)
        for _ in range(3):
            with suppress(ottla.errors.UnknownServerError, ottla.errors.CorruptMessage):
                found += [record.offset for record in consumer.poll(0.5)]
    return found


def test_what_a_store_should_not_have_is_never_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each damage has one line; when the store has what it should have, that is read."""
    tier, data = tmp_path / "tier", tmp_path / "data"
    with Cluster(config=settings_of(tier), data_dir=str(data)) as cluster:
        fill(cluster)
        until_copied(cluster)
        segments = copied(tier)
        # from the last one back: each has indexes that no earlier read has cached
        cases = [
            (segment.with_suffix(suffix), damage)
            for segment, (suffix, damage) in zip(segments[:0:-1], LOST_INDEXES, strict=True)
        ]
        cases += [(segments[0], damage) for damage in DAMAGES]
        for path, damage in cases:
            whole, offset = path.read_bytes(), int(path.name[:20]) + 10
            damage(path)
            caplog.clear()
            assert not _poll(cluster, offset), (path, damage)
            assert len(lines(caplog, "remote.read_failed")) == 1, (path, damage)
            path.unlink(missing_ok=True)
            path.write_bytes(whole)
            assert _poll(cluster, offset)[0] == offset
        assert len(read_all(cluster)) == RECORDS
