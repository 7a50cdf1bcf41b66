"""The snippets of README.md and docs/ are run, page by page, on one node.

Those for Spark are run by tests/spark/test_document.py, the test of README.md by
tests/testing/test_document.py.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import socket
import sys
import time
import tomllib
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla
import ottla.metrics
from ottla.config.broker import parse_broker_config
from ottla.config.properties import read_properties
from ottla.connect.connector import SourceConnector
from ottla.connect.plugins import Plugins
from ottla.connect.simple import connector_class
from ottla.controller.policies import NewTopic, PolicyViolation
from ottla.server.logging.lines import KeyValueFormatter
from ottla.server.node.plugins import (
    load_class,
    load_storage_class,
    load_storage_manager,
    plugin_problems,
)
from ottla.server.system.files import RealDirectory
from ottla.testing import Cluster
from ottla.types import Uuid
from tests.cli.running import run
from tests.documents.snippets import (
    ADDRESS,
    NOT_RUN,
    OWN_TESTS,
    ROOT,
    Snippet,
    first_printed,
    snippets,
)
from tests.verification.damages import sample

if TYPE_CHECKING:
    from collections.abc import Iterator

METRICS_ADDRESS = "localhost:9404"
PROPERTIES = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
offsets.topic.replication.factor=1
log.dirs=data
"""
ENDLESS = {"console-consumer": ["--max-messages", "1"], "server-start": ["--check"]}
"""Arguments that end commands which otherwise run until they are stopped."""


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    """Give a node with metrics."""
    with Cluster(config={"metrics.listener": "127.0.0.1:0"}) as cluster:
        yield cluster


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory that has a server.properties."""
    (tmp_path / "server.properties").write_text(PROPERTIES)
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("KAFKA_", "OTTLA_")):
            monkeypatch.delenv(name)
    return tmp_path


class Shell:
    """Runs the commands of a snippet in this process; `localhost` is the node."""

    def __init__(
        self, node: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._node = node
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def run(self, snippet: Snippet, typed: str = "") -> list[str]:
        """Run each command; return what they print, and fail with the first that fails."""
        assert snippet.kind in ("sh", "bash")
        commands = snippet.text.replace("|\n", "| ").splitlines()
        return [self.command(command, typed) for command in commands]

    def command(self, command: str, typed: str = "") -> str:
        """Run a command, without what it is piped into; return what it prints."""
        command = re.sub(r'"\$\((ottla .*?)\)"', lambda found: self.command(found[1]), command)
        words = shlex.split(command, comments=True)
        words = words[: words.index("|")] if "|" in words else words
        words = [word.replace(ADDRESS, self._node.bootstrap) for word in words]
        with self._monkeypatch.context() as patched:
            while "=" in words[0]:
                patched.setenv(*words.pop(0).split("=", 1))
            return self._run(words, typed)

    def _run(self, words: list[str], typed: str) -> str:
        program, *arguments = words
        if program == "curl":
            assert arguments == [f"{METRICS_ADDRESS}/metrics"]
            with urllib.request.urlopen(self._node.metrics_url) as page:
                return str(page.read().decode())
        if program == "python":
            assert arguments[0] == "-c"
            return first_printed(arguments[1], "")
        assert program == "ottla"
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        arguments += [more for word in arguments for more in ENDLESS.get(word, ())]
        status, out, err = run(self._capsys, *arguments)
        assert status == 0, (words, out, err)
        return out.strip()


@pytest.fixture
def shell(
    node: Cluster,
    directory: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Shell:
    """Give the shell."""
    return Shell(node, capsys, monkeypatch)


def test_readme(node: Cluster, shell: Shell) -> None:
    """Broker, settings file and clients."""
    broker, settings, clients, _, _, streams = snippets("README.md")
    assert shell.run(broker, "typed\n")[1:] == ["Created topic events.", "", "typed"]
    formatted, checked, shown = shell.run(settings)
    assert "Formatting" in formatted
    assert "valid" in checked
    assert re.search(r"^KAFKA_LOG_RETENTION_HOURS +log\.retention\.hours=24$", shown, re.MULTILINE)
    printed = first_printed(clients.text, node.bootstrap)
    assert printed.endswith(("b'typed'", "b'value'")), "both may lie in either partition"
    assert first_printed(streams.text, node.bootstrap).startswith("Topologies:")


def test_clients(node: Cluster) -> None:
    """A record goes there and back; the other program is of another group and without output."""
    program, typed, outage, transaction, loop, two_phase, share, table = snippets("docs/clients.md")
    assert first_printed(program.text, node.bootstrap) == "0 b'value'"
    assert first_printed(transaction.text, node.bootstrap) == "committed"
    assert first_printed(loop.text, node.bootstrap) == "1"
    assert first_printed(two_phase.text, node.bootstrap) == "True"
    assert first_printed(typed.text, node.bootstrap) == "frozenset({'orders'})"
    assert first_printed(f"{share.text}\nprint('ended')", node.bootstrap) == "ended"
    with ottla.Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic("settings", 1, 1, {"cleanup.policy": "compact"})])
    assert first_printed(table.text, node.bootstrap) == "b'blue'"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        address = f"localhost:{port}"
        with (
            ottla.Producer(bootstrap_servers=address, max_block_ms=200) as producer,
            pytest.raises(ottla.TimeoutError) as raised,
        ):
            producer.send("events", b"v")
    text = str(raised.value).replace(str(port), "9093").replace("200 ms", "60000 ms")
    assert text == " ".join(outage.text.split())


def test_configuration(
    shell: Shell,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Settings with their sources; both errors at once."""
    commands, errors = snippets("docs/configuration.md")
    shown, _ = shell.run(commands)
    assert re.search(r"^--override +num\.partitions=3$", shown, re.MULTILINE)
    assert re.search(r"^server\.properties:2 +node\.id=1$", shown, re.MULTILINE)
    (directory / "server.properties").write_text(f"{PROPERTIES}\nlog.segment.bytes=x\n")
    misspelt = ("--override", "log.retenton.hours=1")
    status, _, err = run(capsys, "server-start", "server.properties", "--check", *misspelt)
    assert status == 1
    assert errors.text in err


def test_metrics(node: Cluster, shell: Shell) -> None:
    """The endpoint answers; the named files are where the command says."""
    endpoint, place = snippets("docs/metrics.md")
    assert "ottla_loop_lag_seconds" in shell.run(endpoint)[1]
    (printed,) = shell.run(place)
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    for name in ("ottla-dashboard.json", "ottla-rules.yml"):
        assert f"- `{name}`: " in page
        assert (Path(printed) / name).is_file()


def test_operations(
    shell: Shell, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of a start, and both ways to change a level."""
    lines, levels, *_ = snippets("docs/operations.md")
    _, changed = shell.run(levels)
    assert changed == "Completed updating config for broker-logger 1."
    with caplog.at_level(logging.INFO, "ottla"), Cluster():
        pass
    logged = [KeyValueFormatter().format(record) for record in caplog.records]
    shown = lines.text.splitlines()
    for text, event in zip(shown, ("node.starting", "node.started"), strict=True):
        assert event in text
        (line,) = (one for one in logged if f'"{event}"' in one)
        assert general(line) == general(text)


def test_a_cluster_of_several_nodes(shell: Shell, directory: Path) -> None:
    """The nodes' files can be started once all are formatted with the same controllers."""
    *_, growing, shrinking = snippets("docs/operations.md")
    properties, commands = (
        one
        for one in snippets("docs/operations.md")
        if one.text.startswith(("process.roles=broker,controller", "CLUSTER_ID="))
    )
    text = commands.text.replace("\\\n", "").replace("$CLUSTER_ID", str(Uuid(b"one cluster's id")))
    for number in "123":
        text = text.replace(f"$DIRECTORY_{number}", str(Uuid(number.encode() * 16)))
    for number in "123":
        own = properties.text.replace("host1:909", f"127.0.0.1:{number}909", 2)
        own = own.replace("node.id=1", f"node.id={number}")
        own = own.replace("/var/lib/ottla/1", str(directory / number))
        (directory / f"server-{number}.properties").write_text(own)
        for command in text.replace("server-1", f"server-{number}").splitlines():
            if command.startswith("ottla"):  # the ids stand in the text already
                shell.command(command)
    assert len([*directory.glob("*/__cluster_metadata-0/*.checkpoint")]) == 3
    assert "remove-controller" in shrinking.text
    own = properties.text.replace("host1:909", "127.0.0.1:4909", 2).replace(
        "node.id=1", "node.id=4"
    )
    own = own.replace("/var/lib/ottla/1", str(directory / "4"))
    (directory / "server-4.properties").write_text(own)
    joining, *_ = growing.text.replace("$CLUSTER_ID", str(Uuid(b"one cluster's id"))).splitlines()
    shell.command(joining)
    assert not [*directory.glob("4/__cluster_metadata-0/*.checkpoint")]


def general(line: str) -> str:
    """Return a line of the log without what differs between machines."""
    line = re.sub(r"\((un)?compiled\)", "(compiled)", line)
    return re.sub(r"\d+", "0", re.sub(r"/\S+", "/directory", line))


def test_tools(
    node: Cluster, shell: Shell, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON of groups, whose fields the program for jq names, and a profile."""
    lag, profiles, listing = snippets("docs/tools.md")
    with ottla.Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("shipments", 1)
        admin.alter_group_offsets("shipping", {ottla.TopicPartition("shipments", 0): 0})
    (printed,) = shell.run(lag)
    (group,) = (one for one in json.loads(printed) if one["group"] == "shipping")
    assert ".group as $g | .offsets[] | [$g, .topic, .partition, .lag]" in lag.text
    rows = [(offset["topic"], offset["partition"], offset["lag"]) for offset in group["offsets"]]
    assert rows == [("shipments", 0, 0)]
    production = tomllib.loads(profiles.text)["profiles"]["production"]
    addresses = production["bootstrap_servers"]
    text = profiles.text.replace(addresses, node.bootstrap)
    (directory / "profiles.toml").write_text(text)
    (directory / production["command_config"]).write_text("client.id=tools\n")
    monkeypatch.setenv("OTTLA_PROFILES_FILE", str(directory / "profiles.toml"))
    (listed,) = shell.run(listing)
    assert "shipments" in listed.splitlines()


def test_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy refuses what its text says, also by the Java name that a package offers."""
    policy, plugins, project = snippets("docs/plugins.md")
    assert "ottla.plugins" in tomllib.loads(plugins.text)["project"]["entry-points"]
    ((group, offered),) = tomllib.loads(project.text)["project"]["entry-points"].items()
    ((java_name, path),) = offered.items()
    package = tmp_path / "acme_kafka-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: acme-kafka\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{group}]\n{java_name} = {path}\n")
    module, _, name = path.partition(":")
    (tmp_path / f"{module}.py").write_text(f"{policy.text}\n{name} = TwoReplicas\n")
    monkeypatch.syspath_prepend(tmp_path)
    loaded = load_class(java_name)()
    loaded.configure({"default.replication.factor": "2"})
    loaded.validate(NewTopic("orders", 1, 2, None, {}))
    with pytest.raises(PolicyViolation, match="orders needs 2 replicas"):
        loaded.validate(NewTopic("orders", 1, 1, None, {}))
    loaded.close()
    monkeypatch.delitem(sys.modules, module)


def test_tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings make a store in the directory; the class of the page is accepted as one."""
    settings, own = snippets("docs/tiers.md")
    text = PROPERTIES + settings.text.replace("/mnt/tier", str(tmp_path / "tier"))
    config = parse_broker_config({one.name: one.value for one in read_properties(text)})
    assert not list(plugin_problems(config))
    store = load_storage_manager(config, lambda path: RealDirectory(path, create=True), "cluster")
    store.connect()
    assert sorted(path.name for path in (tmp_path / "tier").iterdir()) == [
        "kafka-tiered-storage",
        "ottla-cluster-id",
    ]
    (tmp_path / "my_tiers.py").write_text(own.text)
    monkeypatch.syspath_prepend(tmp_path)
    assert load_storage_class("my_tiers.MyStorage")().close() is None
    monkeypatch.delitem(sys.modules, "my_tiers")


def test_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of the page work one after another, and print what it shows but for numbers."""
    for path, content in sample().items():
        (tmp_path / "ottla-data" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ottla-data" / path).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    count = 0
    for program in snippets("docs/backup.md"):
        for command, shown in _commands(program.text.replace("/mnt/", "")):
            if command[1].startswith("server-"):
                continue  # started and stopped as everywhere
            time.sleep(0.002)  # ids are times in ms
            status, printed, _ = run(capsys, *command[1:])
            assert status == 0, printed
            assert _without_numbers(printed) == _without_numbers(shown)
            count += 1
    assert count == 6


def _commands(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the commands of a console snippet and what each prints."""
    for part in text.replace("\\\n", "").split("$ ")[1:]:
        command, _, shown = part.partition("\n")
        yield shlex.split(command), shown


def _without_numbers(text: str) -> str:
    return re.sub(r"[0-9][0-9.,:T+-]*", "0", text).strip()


def test_simulation() -> None:
    """Two runs print the same."""
    for program in snippets("docs/simulation.md"):
        assert first_printed(program.text, "") == first_printed(program.text, "")


def test_index(node: Cluster) -> None:
    """The program of the front page reads what it has written."""
    (program,) = (one for one in snippets("docs/index.md") if one.kind == "python")
    text = program.text.replace('"orders"', '"front-page"')  # others create that topic
    assert first_printed(text, node.bootstrap) == "0 b'{\"id\": 1}'"


def test_connect_transforms() -> None:
    """The program prints what the page says; the configuration names the same plug-ins."""
    page = "docs/connect-transforms.md"
    program, configuration = snippets(page)
    line = first_printed(program.text, "")
    assert f"This prints `{line}`" in (ROOT / page).read_text(encoding="utf-8")
    settings = json.loads(configuration.text)
    assert settings["value.converter"] in program.text
    assert settings["transforms.clean.type"] in program.text


def test_writing_connectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source and sink pass the page's tests; a worker finds the source of an installed package."""
    source, check, sink, lines, project = snippets("docs/writing-connectors.md")
    names: dict[str, object] = {}
    for program in (source, check, sink, lines):
        exec(compile(program.text, "docs/writing-connectors.md", "exec"), names)
    assert connector_class(names["Lines"]).runtime == "thread"  # type: ignore[arg-type]
    assert connector_class(names["Numbers"]).runtime == "process"  # type: ignore[arg-type]
    ((group, offered),) = tomllib.loads(project.text)["project"]["entry-points"].items()
    ((name, path),) = offered.items()
    package = tmp_path / "my_package-2.1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: my-package\nVersion: 2.1\n")
    (package / "entry_points.txt").write_text(f"[{group}]\n{name} = {path}\n")
    (tmp_path / f"{path.partition(':')[0]}.py").write_text(source.text)
    monkeypatch.syspath_prepend(tmp_path)
    for given in (name, "my_package.Numbers"):
        plugin = Plugins().find(given, "source", "sink")
        assert (plugin.type, plugin.version) == ("source", "2.1")
        assert issubclass(plugin.load(), SourceConnector)


def test_every_snippet_is_run_or_listed() -> None:
    """A page with snippets has a test of its name here, or elsewhere; the list is not outdated."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    names = [path.relative_to(ROOT).as_posix() for path in pages]
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert not [
        name
        for name in names
        if snippets(name)
        and name not in OWN_TESTS
        and Path(name).stem.lower().replace("-", "_") not in tests
    ]
    texts = "".join(path.read_text(encoding="utf-8") for path in pages)
    assert not [first for first in NOT_RUN if f"\n{first}\n" not in texts]
    assert all((ROOT / test).exists() for test in OWN_TESTS.values())
