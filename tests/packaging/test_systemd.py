"""The systemd unit, and what a node tells the service manager."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.server.system.process import notify
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FILES = ROOT / "packaging" / "systemd"


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Listen as the service manager does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(90)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def test_states_are_sent_to_the_manager(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One datagram; nothing where no manager listens, or the one that did is gone."""
    notify("READY=1", "STATUS=serves")
    assert manager.recv(1000) == b"READY=1\nSTATUS=serves"
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


def test_an_abstract_address_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """An @ stands for the zero byte."""
    name = f"ottla-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(90)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify("STOPPING=1")
        assert listening.recv(100) == b"STOPPING=1"


def test_a_node_says_when_it_serves_and_when_it_stops(
    manager: socket.socket, tmp_path: Path
) -> None:
    """With the settings of the package, in directories of the test: ready, stopping, status 0."""
    text = (FILES / "server.properties").read_text(encoding="utf-8")
    changed = text.replace("/var/lib/ottla", f"{tmp_path}/data")
    changed = changed.replace("PLAINTEXT://:9092", "PLAINTEXT://127.0.0.1:0")
    changed = changed.replace(":9093", f":{free_ports(1)[0]}")
    changed = re.sub(r"^(advertised|metrics)\..*\n", "", changed, flags=re.MULTILINE)
    file = tmp_path / "server.properties"
    file.write_text(changed)
    command = [sys.executable, "-m", "ottla", "server-start", str(file), "--format"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as node:
        states = manager.recv(1000).decode().splitlines()
        assert states[0] == "READY=1"
        assert states[1].startswith("STATUS=serves 127.0.0.1:")
        node.send_signal(signal.SIGTERM)
        assert manager.recv(1000).decode().startswith("STOPPING=1")
        node.communicate(timeout=60)
    assert node.returncode == 0


def test_the_unit_is_valid(tmp_path: Path) -> None:
    """systemd-analyze finds nothing; without it the lines that matter are looked at."""
    text = (FILES / "ottla.service").read_text(encoding="utf-8")
    for line in (
        "Type=notify",
        "User=ottla",
        "LimitNOFILE=100000",
        "StateDirectory=ottla",
        "StateDirectoryMode=0750",
        "UMask=0027",
    ):
        assert f"\n{line}\n" in text
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    unit = tmp_path / "ottla.service"
    unit.write_text(text.replace("/opt/ottla/bin/ottla", "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
