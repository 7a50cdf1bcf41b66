"""Formatting: the files of a fresh directory, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla.config.broker import parse_broker_config
from ottla.metadata.bootstrap import levels_of
from ottla.metadata.framing import decode_record
from ottla.raft.snapshot import decode_snapshot
from ottla.server.node.format import (
    FormatError,
    FormatRequest,
    FormatTarget,
    encode_meta_properties,
    format_directories,
    read_meta_properties,
)
from ottla.storage.directories.log_dir import MetaProperties, decode_meta_properties
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from ottla.types import Uuid
from tests.controller.harness import CLUSTER_ID, PROPERTIES

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

ID = Uuid(b"i" * 16)
FIRST_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def _config(*, static: bool = True, **properties: str) -> BrokerConfig:
    given = {**PROPERTIES, **{name.replace("_", "."): value for name, value in properties.items()}}
    if not static:
        del given["controller.quorum.voters"]
        given["controller.quorum.bootstrap.servers"] = "127.0.0.1:9093"
    return parse_broker_config(given)


def _format(config: BrokerConfig, disks: dict[str, SimulatedDisk], **fields: Any) -> list[str]:
    lines: list[str] = []
    environment = FormatTarget(
        directories=disks,
        new_uuid=lambda: ID,
        now_ms=1000,
        date="Sat Nov 21 10:34:29 UTC 2026",
        echo=lines.append,
    )
    format_directories(config, FormatRequest(**{"cluster_id": CLUSTER_ID, **fields}), environment)
    return lines


def test_the_clusters_id_is_escaped_as_java_does() -> None:
    """Kafka reads the same id from our file and we from Kafka's; no id adds a line."""
    cluster_id = "x\\y:z\nnode.id=7"
    data = encode_meta_properties(MetaProperties(1, cluster_id, 1, ID), "today")
    assert data.endswith(b"\nversion=1\ncluster.id=x\\\\y\\:z\\nnode.id\\=7\n")
    assert decode_meta_properties(data) == MetaProperties(1, cluster_id, 1, ID)


def test_a_static_quorum_gets_two_files() -> None:
    """meta.properties in Java's words and the bootstrap records; nothing about voters."""
    disk = SimulatedDisk()
    lines = _format(_config(), {"data": disk})
    assert lines[-1] == "Formatting metadata directory data with metadata.version 4.3-IV0."
    assert disk.list() == ["bootstrap.checkpoint", "meta.properties"]
    assert disk.read_file("meta.properties") == (
        b"#\n#Sat Nov 21 10:34:29 UTC 2026\nnode.id=1\ndirectory.id=aWlpaWlpaWlpaWlpaWlpaQ\n"
        b"version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    )
    content = decode_snapshot(disk.read_file("bootstrap.checkpoint"))
    assert levels_of([decode_record(value) for value in content.values])["metadata.version"] == 30
    assert len(content.values) == 6


def test_standalone_writes_the_voter_with_the_directorys_own_id() -> None:
    """A dynamic quorum of one begins with a snapshot of no records that holds the voter."""
    disk = SimulatedDisk()
    lines = _format(_config(static=False), {"data": disk}, standalone=True)
    assert "dynamic metadata voter directory" in lines[-1]
    content = decode_snapshot(disk.read_file(FIRST_SNAPSHOT))
    assert content.kraft_version == 1
    assert content.voters is not None
    voter = content.voters.get(1)
    meta = read_meta_properties(disk)
    assert voter is not None
    assert meta is not None
    assert voter.directory_id == meta.directory_id == ID
    assert voter.endpoints == (("CONTROLLER", "127.0.0.1", 9093),)


def test_only_the_metadata_directory_holds_the_quorum() -> None:
    """Further log directories are plain data directories."""
    disks = {"data": SimulatedDisk(), "more": SimulatedDisk()}
    config = _config(static=False, log_dirs="data,more")
    lines = _format(config, disks, standalone=True)
    assert "Formatting data directory more with" in lines[-1]
    assert disks["more"].list() == ["bootstrap.checkpoint", "meta.properties"]


def test_formatted_directories_are_left_alone() -> None:
    """They are an error, or passed over on demand; another cluster's never pass."""
    disks = {"data": SimulatedDisk()}
    _format(_config(), disks)
    with pytest.raises(FormatError, match="Log directory data is already formatted"):
        _format(_config(), disks)
    assert _format(_config(), disks, ignore_formatted=True) == [
        "All of the log directories are already formatted."
    ]
    config = _config(node_id="2", controller_quorum_voters="2@127.0.0.1:9093")
    with pytest.raises(FormatError, match=r"Invalid node\.id in: data/meta\.properties"):
        _format(config, disks, ignore_formatted=True)


@pytest.mark.parametrize("static", [True, False])
def test_a_replaced_directory_takes_its_ids_from_the_others(static: bool) -> None:  # noqa: FBT001 - a parameter
    """Also of a controller with a dynamic quorum: its voters are in the metadata log elsewhere."""
    config = _config(static=static, log_dirs="data,more")
    disks = {"data": SimulatedDisk(), "more": SimulatedDisk()}
    _format(config, disks, standalone=not static)
    disks["more"] = SimulatedDisk()
    lines = _format(config, disks, cluster_id=None, ignore_formatted=True)
    assert "Formatting data directory more with" in lines[-1]
    meta = read_meta_properties(disks["more"])
    assert meta is not None
    assert (meta.cluster_id, meta.node_id) == (CLUSTER_ID, 1)
    assert disks["more"].list() == ["bootstrap.checkpoint", "meta.properties"]


def test_ids_that_are_nowhere_are_needed() -> None:
    """No directory is formatted, or that of the metadata log, which has the voters, is lost."""
    config = _config(static=False, log_dirs="data,more")
    disks = {"data": SimulatedDisk(), "more": SimulatedDisk()}
    with pytest.raises(FormatError, match="--cluster-id/-t is needed: no log directory"):
        _format(config, disks, cluster_id=None, ignore_formatted=True)
    _format(config, disks, standalone=True)
    disks["data"] = SimulatedDisk()
    with pytest.raises(FormatError, match="you must specify one of the following"):
        _format(config, disks, cluster_id=None, ignore_formatted=True)


RELEASE = {"metadata_version": 20, "is_release_given": True}


def test_a_release_is_chosen_by_its_metadata_version() -> None:
    """--feature metadata.version=X, as long as no release is given."""
    disk = SimulatedDisk()
    lines = _format(_config(), {"data": disk}, feature_levels={"metadata.version": 20})
    assert lines[-1] == "Formatting metadata directory data with metadata.version 3.8-IV0."


@pytest.mark.parametrize(
    ("static", "fields", "text"),
    [
        (False, {}, "you must specify one of the following"),
        (True, {"standalone": True}, "You cannot specify controller.quorum.voters"),
        (True, {"feature_levels": {"kraft.version": 1}}, "Cannot set kraft.version to 1"),
        (
            False,
            {"standalone": True, "feature_levels": {"kraft.version": 0}},
            "Cannot set kraft.version to 0",
        ),
        (True, {"feature_levels": {"nosuch": 1}}, "Unsupported feature: nosuch"),
        (True, {"feature_levels": {"share.version": 9}}, "share.version"),
        (True, {"feature_levels": {"metadata.version": 99}}, "levels are from 7 to 31"),
        (
            True,
            {"metadata_version": 20, "feature_levels": {"eligible.leader.replicas.version": 1}},
            "depends on metadata.version level 23",
        ),
        (
            True,
            {**RELEASE, "feature_levels": {"metadata.version": 9}},
            "Use --release-version instead",
        ),
    ],
)
def test_refuses_what_cannot_be(static: bool, fields: dict[str, Any], text: str) -> None:  # noqa: FBT001 - a table's column
    """Contradictions are told, and nothing is written."""
    disk = SimulatedDisk()
    with pytest.raises(FormatError, match=text.replace(".", r"\.")):
        _format(_config(static=static), {"data": disk}, **fields)
    assert disk.list() == []


def test_a_power_cut_leaves_no_half_formatted_directory() -> None:
    """meta.properties comes last: where it is, all the rest is."""
    for call in range(1, 30):
        disk = SimulatedDisk(call)
        disk.crash_at(call)
        with suppress(SimulatedCrash):
            _format(_config(static=False), {"data": disk}, standalone=True)
        disk.heal()
        disk.crash()
        if disk.exists("meta.properties"):
            decode_snapshot(disk.read_file("bootstrap.checkpoint"))
            decode_snapshot(disk.read_file(FIRST_SNAPSHOT))
