"""Object stores as remote storage: in memory, and on a server of S3."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ottla.errors import ConfigError
from ottla.storage.remote.managers.object_store import ObjectStorage
from ottla.storage.remote.storage_manager import (
    IndexKind,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from ottla.testing.disk import SimulatedDisk
from tests.ports import free_ports
from tests.source_trees import ROOT
from tests.spark.s3_server import BUCKET, KEYS, running_s3
from tests.storage.remote.test_directory_manager import LOG, NAME, SUFFIXES, files_of, segment_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.storage_manager import SegmentFiles

SECRET = KEYS["secret.key"]


@pytest.fixture(autouse=True)
def _client() -> None:
    """Need the client: it is in the extra `tiers`."""
    try:
        import obstore  # noqa: F401
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail("obstore is missing: scripts/setup installs it")
        pytest.skip("obstore is missing: scripts/setup installs it")


@pytest.fixture(scope="module", name="address")
def _address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_s3(tmp_path_factory.mktemp("s3")) as address:
        yield address


def settings_of(address: str, **more: str) -> dict[str, str]:
    """Return the settings for a bucket of a server."""
    return {
        "url": f"s3://{BUCKET}/tiers/one",
        "broker.id": "1",
        "store.endpoint": address,
        "store.region": "us-east-1",
        "store.access_key_id": KEYS["access.key"],
        "store.secret_access_key": SECRET,
        **more,
    }


def storage_of(settings: dict[str, str]) -> ObjectStorage:
    """Return a configured manager."""
    storage = ObjectStorage()
    storage.configure(settings)
    return storage


def large(size: int = 13_000_001) -> tuple[RemoteSegment, SegmentFiles, bytes]:
    """Return a segment of three parts, its files and its log."""
    data = random.Random(size).randbytes(size)
    disk = SimulatedDisk()
    disk.write_file_atomically("l.log", data)
    files = files_of(disk)
    log = files.log._replace(path="l.log", size=size)
    return segment_of(size, number=9), files._replace(log=log), data


def test_a_segment_goes_to_s3_and_comes_back(address: str) -> None:
    """The log is copied in parts; ranges, indexes and deletion work as with a directory."""
    storage = storage_of(settings_of(address, **{"part.bytes": "5242880"}))
    segment, files, data = large()
    storage.copy_segment(segment, files)
    with storage.read_segment(segment, 0) as stream:
        assert stream.read() == data
    with storage.read_segment(segment, 1_000_000, 4_000_000) as stream:
        assert stream.read(10) == data[1_000_000:1_000_010]
        assert stream.read(2_000_000) == data[1_000_010:3_000_010]
        assert stream.read() == data[3_000_010:4_000_001]
    with storage.read_index(segment, IndexKind.PRODUCER_SNAPSHOT) as stream:
        assert stream.read() == b"snapshot"
    storage.delete_segment(segment)
    storage.delete_segment(segment)
    with pytest.raises(RemoteResourceNotFoundError):
        storage.read_segment(segment, 0)
    with pytest.raises(RemoteResourceNotFoundError, match="txnindex"):
        storage.read_index(segment, IndexKind.TRANSACTION)


def test_objects_have_the_names_of_the_directory() -> None:
    """What is copied from a directory to a bucket by other means is found."""
    storage = storage_of({"url": "memory:///"})
    storage.copy_segment(segment_of(), files_of(SimulatedDisk()))
    (listed,) = storage._obstore.list(storage._store)
    assert sorted(one["path"] for one in listed) == [f"{NAME}{suffix}" for suffix in SUFFIXES]


def test_an_object_of_another_length_is_not_served() -> None:
    """A log that was cut or replaced is an error at the first byte."""
    storage = storage_of({"url": "memory:///"})
    storage.copy_segment(segment_of(), files_of(SimulatedDisk()))
    storage._obstore.put(storage._store, f"{NAME}.log", LOG[:-1])
    with pytest.raises(RemoteStorageError, match="has 1048575 bytes, and had 1048576"):
        storage.read_segment(segment_of(), 0)


def test_a_local_file_that_is_too_short_is_not_copied(address: str) -> None:
    """The copy ends with an error, and no object of that name appears."""
    storage = storage_of(settings_of(address))
    segment, files, _ = large(7_000_000)
    with pytest.raises(RemoteStorageError, match="less than"):
        storage.copy_segment(segment, files._replace(log=files.log._replace(size=9_000_000)))
    with pytest.raises(RemoteResourceNotFoundError):
        storage.read_segment(segment, 0)


def test_two_clusters_do_not_share_a_prefix(address: str) -> None:
    """The first one to write the marker owns it; another prefix is another place."""
    storage_of(settings_of(address, **{"cluster.id": "one"}))
    storage_of(settings_of(address, **{"cluster.id": "one"}))
    with pytest.raises(ConfigError, match="of cluster one, not of two"):
        storage_of(settings_of(address, **{"cluster.id": "two"}))
    storage_of(settings_of(address, url=f"s3://{BUCKET}/other", **{"cluster.id": "two"}))


def test_a_store_that_is_away_is_retried_and_no_secret_is_told() -> None:
    """The error can be retried; its text and its causes have neither key nor signature."""
    (port,) = free_ports(1)
    storage = storage_of(settings_of(f"http://127.0.0.1:{port}", retries="1"))
    with pytest.raises(RetriableRemoteStorageError) as caught:
        storage.copy_segment(segment_of(), files_of(SimulatedDisk()))
    text = f"{caught.value!r} {caught.value.__cause__!r}"
    assert "\n" not in text
    assert SECRET not in text
    assert KEYS["access.key"] not in text
    with pytest.raises(RetriableRemoteStorageError) as refused:
        storage_of(settings_of(f"http://127.0.0.1:{port}", retries="0", **{"cluster.id": "one"}))
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"url": "ftp://x"}, "url must begin with one of s3://"),
        ({"part.bytes": "1000"}, "part.bytes must be a number of at least 5242880, not 1000"),
        ({"retries": "x"}, "retries must be a number of at least 0, not x"),
        ({"store.nonsense": SECRET}, "cannot be set up: UnknownConfigurationKeyError"),
    ],
)
def test_settings_are_checked(changes: dict[str, str], text: str) -> None:
    """Each is named; values of the client's settings are not."""
    with pytest.raises(ConfigError, match=text) as caught:
        storage_of(settings_of("http://127.0.0.1:1", **changes))
    assert SECRET not in str(caught.value)


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is optional."""

    def missing(_name: str) -> None:
        raise ImportError

    monkeypatch.setattr("ottla.storage.remote.managers.object_store.import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install '\.\[tiers\]'"):
        storage_of({"url": "memory:///"})


@pytest.mark.soak
def test_many_workers_share_a_store(address: str, tmp_path: Path) -> None:
    """A process that copies and reads from threads ends with code 0."""
    program = tmp_path / "program.py"
    program.write_text(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from tests.storage.remote.test_object_store import settings_of, storage_of\n"
        "from tests.storage.remote.test_directory_manager import LOG, files_of, segment_of\n"
        "from ottla.testing.disk import SimulatedDisk\n"
        f"storage = storage_of(settings_of({address!r}, url='s3://{BUCKET}/many'))\n"
        "def work(number):\n"
        "    segment = segment_of(number=number)\n"
        "    storage.copy_segment(segment, files_of(SimulatedDisk()))\n"
        "    with storage.read_segment(segment, 5) as stream:\n"
        "        assert stream.read() == LOG[5:]\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    list(pool.map(work, range(40)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, str(program)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
