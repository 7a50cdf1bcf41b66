"""`ottla server-stop`, and the command that a start on a taken port proposes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
import pytest

from ottla.cli.commands.server_start import server_start
from ottla.cli.commands.server_stop import VALUE_FLAGS, RunningNode, without_wrappers
from ottla.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IDS = [str(os.getpid() * 10 + number) for number in range(7)]
"""Of nodes on this machine that no other test run stops."""
OTTLA = (sys.executable, "-m", "ottla")
SETTINGS = """process.roles=broker,controller
node.id={node_id}
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
log.dirs={data}
"""


class Processes:
    """Nodes that are started in directories of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> dict[str, object]:
        """Start a node; return what it wrote into its ready file."""
        folder = self.root / str(len(self.running))
        folder.mkdir()
        ready = folder / "ready.json"
        command = [*OTTLA, "server-start", "--ready-file", "ready.json", *arguments]
        with (folder / "log").open("wb") as log:
            self.running.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert time.monotonic() < deadline, (folder / "log").read_text()
            assert self.running[-1].poll() is None, (folder / "log").read_text()
            time.sleep(0.02)
        found: dict[str, object] = json.loads(ready.read_text())
        return found


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Give nodes; those that still run are killed."""
    found = Processes(tmp_path)
    yield found
    for one in found.running:
        one.kill()
        one.wait()


def stop(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    """Run server-stop."""
    status: object = 0
    try:
        main(["server-stop", *arguments])
    except SystemExit as ended:
        status = ended.code or 0
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_nodes_are_chosen_and_stopped(
    processes: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    """By id or role, from flags; by ready file; the command returns when the node has ended."""
    first = processes.start("--port", "0", "--override", f"node.id={IDS[1]}")
    missing = stop(capsys, "--node-id", IDS[2])
    assert missing == (1, "No kafka server to stop\n", "")
    assert stop(capsys, "--node-id", IDS[1], "--process-role", "share")[0] == 1
    stopped = stop(capsys, "--node-id", IDS[1], "--process-role", "broker")
    assert stopped == (0, f"stopped pid {first['pid']}\n", "")
    assert processes.running[0].wait(60) == 0


@pytest.mark.soak
def test_a_properties_file_names_one_of_two_nodes_with_the_same_id(
    processes: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other one, of another cluster, goes on; paths are compared, not how they are written."""
    files = [processes.root / f"{name}.properties" for name in ("first", "second", "third")]
    for file in files:
        data = processes.root / f"{file.stem}-data"
        file.write_text(SETTINGS.format(node_id=IDS[5], data=data))
    first = processes.start("--format", f"../{files[0].name}")
    second = processes.start(str(files[1]), "--format")
    assert stop(capsys, str(files[2])) == (1, "No kafka server to stop\n", "")
    assert stop(capsys, str(files[0]), "--node-id", IDS[6])[0] == 1
    assert stop(capsys, str(files[0]))[1] == f"stopped pid {first['pid']}\n"
    assert processes.running[1].poll() is None
    assert stop(capsys, *map(str, files))[1] == f"stopped pid {second['pid']}\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot read {path}: No such file or directory; a running node writes it, see"),
        ("{}", "{path} is not a ready file of ottla server-start"),
        ("[1]", "{path} is not a ready file of ottla server-start"),
    ],
)
def test_a_wrong_ready_file(
    content: str | None, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, no traceback."""
    path = tmp_path / "ready.json"
    if content is not None:
        path.write_text(content)
    status, _, err = stop(capsys, "--ready-file", str(path))
    assert status == 1
    assert err.startswith(text.format(path=path))


LEVEL = ("--log-level", "WARN")


@pytest.mark.soak
def test_the_command_for_a_taken_port_works_when_pasted(
    processes: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The proposal starts the same node on a free port."""
    first = processes.start("--port", "0", "--override", f"node.id={IDS[3]}")
    host, _, port = str(first["bootstrap"]).partition(":")
    (processes.root / "other").mkdir()
    done = subprocess.run(
        [*OTTLA, "server-start", "--port", port, "--override", f"node.id={IDS[4]}", *LEVEL],
        cwd=processes.root / "other",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    *_, reason, command = done.stderr.splitlines()
    assert reason.startswith(f"Error: port {port} on {host} is taken by pid {first['pid']} (")
    assert reason.endswith("; stop it, or start this node on another port:")
    words = shlex.split(command)
    assert words[:4] == ["ottla", "server-start", *LEVEL]
    second = processes.start(*words[2:])
    assert second["bootstrap"] != first["bootstrap"]
    ready = str(processes.root / "1" / "ready.json")
    assert stop(capsys, "--ready-file", ready) == (0, f"stopped pid {second['pid']}\n", "")
    processes.running[0].send_signal(signal.SIGTERM)


def test_a_program_that_runs_a_node_is_not_signalled() -> None:
    """`timeout 60 ottla server-start` passes SIGTERM on: the node would get it twice."""

    def node(pid: int, parent: int) -> RunningNode:
        process: Any = SimpleNamespace(pid=pid, ppid=lambda: parent)
        return RunningNode(process, [])

    wrapper, wrapped, other = node(5, 1), node(6, 5), node(7, 1)
    assert without_wrappers([wrapper, wrapped, other]) == [wrapped, other]


def test_values_of_flags_are_not_taken_for_the_properties_file() -> None:
    """Each flag of server-start with a value is known: else its node's id is read from nowhere."""
    options = [one for one in server_start.params if isinstance(one, click.Option)]
    assert set(VALUE_FLAGS) == {one.opts[0] for one in options if not one.is_flag}
