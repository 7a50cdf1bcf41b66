"""Ottla's tools compared with Kafka's: each story of `stories/` runs with both on both nodes.

A story is a file of calls. It runs four times: with Kafka's tools and with Ottla's, on a Kafka node
and on an Ottla node. On each node both tools must print the same and end with the same status, and
Kafka's tools must print the same on both nodes, except where the story gives a reason. On a
selected cluster both tools must agree.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.clients.target import SELECTED
from tests.conformance.tool_pairs import TELLERS, differences, read_story

if TYPE_CHECKING:
    from tests.conformance.tool_pairs import Place, ToolJvm

pytestmark = pytest.mark.conformance

STORIES = sorted(
    path
    for path in (Path(__file__).parents[1] / "stories").glob("*.txt")
    if (SELECTED, path.stem) != ("mixed", "features")  # each kind of node answers with its own
)
CLUSTER, VOTER = "CCCCCCCCCCCCCCCCCCCCCw", "AAAAAAAAAAAAAAAAAAAAAw"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Write the files that the stories name."""
    (tmp_path / "add.properties").write_text("retention.ms=7000000\nmin.insync.replicas=1\n")
    (tmp_path / "client.properties").write_text("client.id=x\n")
    (tmp_path / "wrong.properties").write_text("request.timeout.ms=abc\n")
    for mark in TELLERS.values():
        topic = f"off-{mark}"
        _offsets(tmp_path / f"delete-{mark}.json", (topic, 0, 1), (topic, 1, 99))
        _offsets(tmp_path / f"delete-all-{mark}.json", (topic, 0, -1))
        _offsets(tmp_path / f"elect-{mark}.json", (topic, 0, 0), (topic, 7, 0))
        plan = f"cga-{mark},0,1\ncga-{mark},1,1\n"
        (tmp_path / f"one-{mark}.csv").write_text(plan)
        plans = f"one-{mark},cga-{mark},0,2\ntwo-{mark},cgb-{mark},0,99\n"
        (tmp_path / f"many-{mark}.csv").write_text(plans)
    _offsets(tmp_path / "twice.json", ("t", 0, 1), ("t", 0, 2))
    (tmp_path / "no-offset.json").write_text('{"partitions": [{"topic": "t", "partition": 0}]}')
    (tmp_path / "no-partitions.json").write_text('{"version": 1}')
    (tmp_path / "version-2.json").write_text('{"partitions": [], "version": 2}')
    (tmp_path / "no-json.json").write_text("no json")
    _controller(tmp_path)
    return tmp_path


def _offsets(path: Path, *entries: tuple[str, int, int]) -> None:
    fields = ("topic", "partition", "offset")
    partitions = [dict(zip(fields, entry, strict=True)) for entry in entries]
    path.write_text(json.dumps({"partitions": partitions, "version": 1}))


def _controller(directory: Path) -> None:
    """Describe a controller that has the id of the one voter."""
    log_dir = directory / "controller"
    log_dir.mkdir()
    (log_dir / "meta.properties").write_text(
        f"version=1\nnode.id=1\ncluster.id={CLUSTER}\ndirectory.id={VOTER}\n"
    )
    common = "node.id=1\nlisteners=CONTROLLER://127.0.0.1:9\ncontroller.listener.names=CONTROLLER\n"
    controller = f"{common}process.roles=controller\n"
    (directory / "controller.properties").write_text(f"{controller}log.dirs={log_dir}\n")
    (directory / "no-directory.properties").write_text(f"{controller}log.dirs={directory}/none\n")
    (directory / "node.properties").write_text(
        "node.id=1\nprocess.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:8,CONTROLLER://127.0.0.1:9\n"
        f"controller.quorum.voters=1@127.0.0.1:9\nlog.dirs={directory}/unformatted\n"
    )
    (directory / "broker.properties").write_text(f"{common}process.roles=broker\n")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, places: list[Place], tool_jvm: ToolJvm, directory: Path) -> None:
    """Both tools print the same text with the same statuses on both nodes."""
    found = differences(read_story(story), places, directory, tool_jvm)
    assert not found, "\n".join(found)
