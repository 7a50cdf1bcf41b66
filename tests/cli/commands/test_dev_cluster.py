"""`ottla dev-cluster` as a user runs it: processes on loopback that Ctrl-C stops together."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from ottla.cli.main import main
from tests.ports import ports_in_a_row

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

SECONDS = 60


@pytest.mark.soak
def test_nodes_serve_until_ctrl_c_and_keep_their_data(tmp_path: Path) -> None:
    """Every process has ended, cleanly; the directories can be started again."""
    port = ports_in_a_row(4)
    command = [sys.executable, "-m", "ottla", "dev-cluster", "--nodes", "2", "--json"]
    command += ["--base-port", str(port), "--data-dir", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    found = json.loads(running.stdout.readline() or "{}")
    assert found["bootstrap"] == f"127.0.0.1:{port},127.0.0.1:{port + 1}", running.communicate()
    asked = subprocess.run(
        [
            sys.executable,
            "-m",
            "ottla",
            "cluster",
            "list-endpoints",
            "--json",
            "--bootstrap-server",
            found["nodes"][1]["bootstrap"],
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert [one["id"] for one in json.loads(asked.stdout)] == [1, 2]
    again = start_again(found["nodes"][1], tmp_path / "again.json")
    running.send_signal(signal.SIGINT)
    begun_s = time.monotonic()
    output, errors = running.communicate(timeout=SECONDS)
    assert running.returncode == 0, (output, errors, time.monotonic() - begun_s)
    assert not any(psutil.pid_exists(one["pid"]) for one in found["nodes"])
    assert again.wait(SECONDS) == 0
    logs = [(tmp_path / f"node-{n}" / "server.log").read_text() for n in (1, 2)]
    assert all("stopped in" in log for log in logs), logs


def start_again(node: dict[str, Any], ready: Path) -> subprocess.Popen[bytes]:
    """Stop a node and start it in another terminal, as dev-cluster proposes."""
    process = psutil.Process(node["pid"])
    process.terminate()
    process.wait(SECONDS)
    command = [sys.executable, "-m", "ottla", "server-start", node["settings"]]
    again = subprocess.Popen([*command, "--ready-file", str(ready)], stderr=subprocess.DEVNULL)
    deadline_s = time.monotonic() + SECONDS
    while not ready.exists():
        assert again.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    threading.Thread(target=again.wait).start()  # as a shell does
    return again


def refusal(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """Return why dev-cluster does not start."""
    with pytest.raises(SystemExit) as ended:
        main(["dev-cluster", *flags])
    assert ended.value.code == 1
    return capsys.readouterr().err


def test_another_number_of_nodes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The voters are those that the directory was formatted with."""
    data = tmp_path / "node-1" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").touch()
    said = refusal(capsys, "--data-dir", str(tmp_path))
    assert f"{tmp_path} has 1 nodes: give --nodes 1" in said


def test_other_ports_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The voters' addresses are in the metadata log: elsewhere they find no majority."""
    node = tmp_path / "node-1"
    (node / "data").mkdir(parents=True)
    (node / "data" / "meta.properties").touch()
    (node / "server.properties").write_text(
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
    )
    flags = ("--nodes", "1", "--data-dir", str(tmp_path), "--base-port", "9192")
    assert f"{tmp_path} has nodes on the ports from 9092 on: give --base-port 9092" in refusal(
        capsys, *flags
    )


def test_a_taken_port_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before any node starts, with the flag that chooses others."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        flags = ("--nodes", "1", "--data-dir", str(tmp_path), "--base-port", str(port))
        said = refusal(capsys, *flags)
    assert f"port {port} on 127.0.0.1 is taken by pid" in said
    assert "choose other ports with --base-port" in said
    assert not list(tmp_path.iterdir())
