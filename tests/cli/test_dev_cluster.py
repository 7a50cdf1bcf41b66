"""`ottla dev-cluster` as a user runs it: processes on loopback that Ctrl-C stops together."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psutil
import pytest

from ottla.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60


def free_ports(count: int) -> int:
    """Return the first of some free ports in a row."""
    for first in range(21_000, 32_000, count):
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


def test_nodes_serve_until_ctrl_c_and_keep_their_data(tmp_path: Path) -> None:
    """Every process has ended, cleanly; the directories can be started again."""
    port = free_ports(4)
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
    running.send_signal(signal.SIGINT)
    begun_s = time.monotonic()
    output, errors = running.communicate(timeout=SECONDS)
    assert running.returncode == 0, (output, errors, time.monotonic() - begun_s)
    assert not any(psutil.pid_exists(one["pid"]) for one in found["nodes"])
    logs = [(tmp_path / f"node-{n}" / "server.log").read_text() for n in (1, 2)]
    assert all("stopped in" in log for log in logs), logs


def test_another_number_of_nodes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The voters are those that the directory was formatted with."""
    data = tmp_path / "node-1" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").touch()
    with pytest.raises(SystemExit) as ended:
        main(["dev-cluster", "--data-dir", str(tmp_path)])
    assert ended.value.code == 1
    assert f"{tmp_path} has 1 nodes: give --nodes 1" in capsys.readouterr().err
