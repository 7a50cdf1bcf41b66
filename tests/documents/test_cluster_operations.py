"""The steps of docs/operations.md for a cluster: each command is run on nodes of this process."""

from __future__ import annotations

import json
import shlex
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, NewTopic, Producer
from ottla.testing import Cluster
from tests.cli.running import run
from tests.documents.snippets import section
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = "docs/operations.md"
TOPIC = "events"


class Site:
    """Nodes 1 to 3, and node 4, which has a file of settings."""

    def __init__(self, three: Cluster, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.three = three
        self.fourth: Cluster | None = None
        self.directory = directory
        self._capsys = capsys
        self._hosts = {f"host{one.node_id}:9092": one.address for one in three.nodes} | {
            f"host{one.node_id}:9093": "{}:{}".format(
                *one.run(lambda node: node.addresses["CONTROLLER"])
            )
            for one in three.nodes
        }
        self.cluster_id = three.run(lambda node: node.cluster_id)

    def close(self) -> None:
        """Stop node 4."""
        if self.fourth is not None:
            self.fourth.stop()

    def here(self, text: str) -> str:
        """Return a text of the page with the addresses and paths of the test."""
        for host, address in self._hosts.items():
            text = text.replace(host, address)
        text = text.replace("$CLUSTER_ID", self.cluster_id).replace("host4:9092", "127.0.0.1:0")
        return text.replace("/var/lib/ottla", str(self.directory))

    def step(self, command: str) -> str:
        """Run a command of the page; return what it prints."""
        words = shlex.split(self.here(command))
        if words[0] == "until":
            end = words.index("do")
            words = [word.removesuffix(";") for word in words[1:end]]
            wait_for(lambda: self._tool(words)[0] == 0)
            return ""
        if words[1] in ("server-start", "server-stop"):
            self._node(words[1] == "server-start", words[2])
            return ""
        file = words[-1] if words[-2] == ">" else None
        words = words[: words.index("|")] if "|" in words else words
        status, shown = self._tool(words)
        if status and words[1:3] == ["cluster", "health"]:  # a busy machine: a node may be fenced
            shown = wait_for(lambda: self._healthy(words), problem=shown)
        else:
            assert status == 0, (words, shown)
        if file is not None:
            (self.directory / file).write_text(shown.splitlines()[-1])
        return shown

    def steps(self, title: str) -> Iterator[tuple[str, str]]:
        """Run the commands of a section one after the other."""
        for snippet in section(PAGE, title):
            if snippet.kind == "sh":
                for command in snippet.text.splitlines():
                    if "--verify" in command:
                        wait_for(lambda: self._is_complete(command))  # noqa: B023 - at once
                    yield command, self.step(command)

    def _is_complete(self, command: str) -> bool:
        shown = self._tool(shlex.split(self.here(command)))[1]
        return "is still in progress" not in shown

    def _healthy(self, words: list[str]) -> str:
        status, shown = self._tool(words)
        return "" if status else shown

    def _tool(self, words: list[str]) -> tuple[int, str]:
        assert words[0] == "ottla"
        status, out, err = run(self._capsys, *words[1:])
        return status, out.strip() or err

    def _node(self, starts: bool, file: str) -> None:  # noqa: FBT001 - one of two commands
        """Start or stop a node of the page in this process."""
        if file == "server-1.properties":
            (self.three.start if starts else self.three.stop)(1)
        elif not starts:
            assert self.fourth is not None
            self.fourth.shutdown()
        else:
            lines = (self.directory / file).read_text().splitlines()
            config = dict(line.split("=", 1) for line in lines)
            self.fourth = Cluster(config=config, data_dir=config.pop("log.dirs")).start()

    def replicas(self) -> list[tuple[int, ...]]:
        """Return the in-sync replicas of the topic."""
        with Admin(bootstrap_servers=self.three.bootstrap) as admin:
            topic = admin.describe_topics([TOPIC])[TOPIC]
        assert not isinstance(topic, Exception)
        return [tuple(sorted(one.isr)) for one in topic.partitions]


@pytest.fixture
def site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    """Give the nodes, a topic with records, and the files that the page names."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        three = stack.enter_context(Cluster(nodes=3, config={"min.insync.replicas": 2}))
        site = Site(three, tmp_path, capsys)
        stack.callback(site.close)
        with Admin(bootstrap_servers=three.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 8, 3)])
        with Producer(bootstrap_servers=three.bootstrap) as producer:
            producer.send_many(TOPIC, [b"value"] * 100)
        (snippet, *_) = section(PAGE, "Add a broker")
        settings = site.here(snippet.text)
        one = f"log.dirs={tmp_path}/4"
        assert one in settings
        two = settings.replace(one, f"{one},{tmp_path}/4-more")
        (tmp_path / "server-4.properties").write_text(two)
        topics = {"version": 1, "topics": [{"topic": TOPIC}]}
        (tmp_path / "topics.json").write_text(json.dumps(topics))
        yield site


def _brokers(shown: str) -> str:
    return next(line for line in shown.splitlines() if line.startswith("Brokers:")).split(":")[1]


@pytest.mark.soak
def test_a_broker_is_added_repaired_and_removed(site: Site) -> None:
    """Its replicas are in sync after each section."""
    printed = dict(site.steps("Add a broker"))
    assert f"Cluster ID: {site.cluster_id}" in printed.values()
    (health,) = (shown for command, shown in printed.items() if "health" in command)
    assert _brokers(health).split() == ["1,", "2,", "3,", "4"]
    wait_for(lambda: any(4 in isr for isr in site.replicas()))
    data = site.directory / "4"
    for command, _ in site.steps("Replace a disk"):
        if "server-stop" in command:
            shutil.rmtree(data)
    assert any(4 in isr for isr in site.replicas())
    assert (data / "meta.properties").exists()
    assert list(site.directory.glob(f"4*/{TOPIC}-*/*.log"))
    *_, (_, health) = site.steps("Remove a broker for good")
    assert _brokers(health).split() == ["1,", "2,", "3"]
    assert set(site.replicas()) == {(1, 2, 3)}


def test_nodes_are_restarted_one_after_the_other(site: Site) -> None:
    """Nothing is under-replicated at the end."""
    commands = [command for command, _ in site.steps("Restart one node after the other")]
    assert len(commands) == 5
    assert set(site.replicas()) == {(1, 2, 3)}
