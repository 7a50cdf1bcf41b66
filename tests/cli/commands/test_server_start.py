"""Texts of `ottla server-start` for what a user can get wrong; wrong settings: tests/config."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from contextlib import closing
from socket import socket
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from ottla.cli.commands.server_start import _file_advice, _port_advice, format_empty, server_start
from ottla.cli.main import main
from ottla.config.broker import parse_broker_config
from ottla.config.properties import write_properties
from ottla.server.system.ports import PortTaken

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_cannot_be_opened() -> None:
    """The path, the reason and what to do."""
    denied = OSError(errno.EACCES, os.strerror(errno.EACCES), "/data/.lock")
    assert _file_advice(denied) == (
        "cannot open /data/.lock: Permission denied; give this user the right to read and write "
        "it, or choose other log.dirs"
    )
    assert _file_advice(OSError("the disk is gone")) == "the disk is gone"


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    """One line, no traceback, with and without --format."""
    path = tmp_path / "data"
    path.write_text("")
    for flags in ([], ["--format"]):
        arguments = ["--port", "0", "--override", f"log.dirs={path}", *flags]
        told = CliRunner().invoke(server_start, arguments)
        assert told.exit_code == 1
        assert told.output.splitlines()[-1].startswith(("Error: cannot ", "Error: log directory"))
        assert "Traceback" not in told.output


def test_a_check_formats_nothing(tmp_path: Path) -> None:
    """--check reads only."""
    flags = ["--port", "0", "--override", f"log.dirs={tmp_path / 'data'}", "--format", "--check"]
    assert CliRunner().invoke(server_start, flags).output == "The configuration is valid.\n"
    assert not (tmp_path / "data").exists()


def test_a_check_names_what_would_keep_the_node_from_starting(tmp_path: Path) -> None:
    """A directory that is not formatted, a port that is taken; the configuration stays valid."""
    with socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        file = tmp_path / "server.properties"
        text = {**settings(tmp_path), "listeners": f"CONTROLLER://127.0.0.1:{port}"}
        file.write_text("".join(f"{name}={value}\n" for name, value in text.items()))
        result = CliRunner().invoke(server_start, [str(file), "--check"])
    assert result.exit_code == 0
    first, second, third, last = result.output.splitlines()
    assert first.startswith(f"warning: {tmp_path / '1'} is not formatted: ottla storage format")
    assert second.startswith(f"warning: {tmp_path / '2'} is not formatted: ")
    assert third.startswith(f"warning: port {port} on 127.0.0.1 is taken by ")
    assert last == "The configuration is valid."


def settings(root: Path, *, roles: str = "controller") -> dict[str, str]:
    """Return the settings of a node of three controllers, with two directories."""
    listener = "CONTROLLER" if roles == "controller" else "PLAINTEXT"
    return {
        "node.id": "1",
        "process.roles": roles,
        "listeners": f"{listener}://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "a:9093,b:9093,c:9093",
        "log.dirs": f"{root / '1'},{root / '2'}",
    }


def test_a_broker_formats_its_directories(tmp_path: Path) -> None:
    """It takes no part in the quorum, whose controllers are formatted elsewhere."""
    format_empty(parse_broker_config(settings(tmp_path, roles="broker")), "id")
    assert [(tmp_path / name / "meta.properties").exists() for name in "12"] == [True, True]


def test_one_of_several_controllers_does_not_become_a_quorum_of_its_own(tmp_path: Path) -> None:
    """The refusal names the command; once it is formatted so, --format adds other directories."""
    given = settings(tmp_path)
    config = parse_broker_config(given)
    with pytest.raises(click.ClickException, match="several controllers: ottla storage format"):
        format_empty(config, "id")
    assert not list(tmp_path.iterdir())
    file = tmp_path / "server.properties"
    file.write_text(write_properties({**given, "log.dirs": str(tmp_path / "1")}))
    voters = "1@127.0.0.1:9093:wYoxuRJbR4GJW0PUQZCq3g"
    main(["storage", "format", "-t", "id", "-c", str(file), "--initial-controllers", voters])
    format_empty(config, None)
    assert "cluster.id=id" in (tmp_path / "2" / "meta.properties").read_text()


def test_a_node_that_waits_for_its_quorum_stops_on_a_signal(tmp_path: Path) -> None:
    """One of three controllers, the others of which do not run: status 0 and no traceback."""
    with closing(socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        file = tmp_path / "server.properties"
        file.write_text(
            "node.id=1\nprocess.roles=controller\nlisteners=CONTROLLER://127.0.0.1:0\n"
            "controller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@127.0.0.1:{port},2@127.0.0.1:{port},3@127.0.0.1:{port}\n"
            f"log.dirs={tmp_path / 'data'}\n"
        )
        command = [sys.executable, "-m", "ottla", "server-start", str(file), "--format"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as node:
            assert node.stdout is not None
            lines = []
            for line in node.stdout:
                lines.append(line)
                if "Prospective" in line:
                    break
            node.send_signal(signal.SIGTERM)
            lines.append(node.communicate(timeout=60)[0])
    printed = "".join(lines)
    assert node.returncode == 0, printed
    assert "SIGTERM received: the node stops" in printed
    assert "Traceback" not in printed


def test_a_taken_port_of_a_development_node_is_changed_by_its_flag() -> None:
    """Where settings were given, all listeners are named."""
    taken = PortTaken("port 9092 is taken by java", ["listeners=PLAINTEXT://localhost:9093"], 9093)
    unset = (None, "", None, None)
    advice = _port_advice(taken, None, (), (None, "DEBUG", None, None))
    assert advice.endswith("\n  ottla server-start --port 9093 --log-level DEBUG")
    listeners = "--override listeners=PLAINTEXT://localhost:9093"
    assert _port_advice(taken, "f", (), unset).endswith(f"\n  ottla server-start f {listeners}")
    metrics = PortTaken("port 9404 is taken", ["metrics.listener=localhost:9405"], 9405)
    assert _port_advice(metrics, None, (), unset).endswith("metrics.listener=localhost:9405")
