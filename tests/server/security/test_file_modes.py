"""Records and secrets on the disk are not for every user of the machine."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, Consumer, Producer
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.server.system.files import RealDirectory
from ottla.server.system.real import RealEnvironment
from ottla.testing.cluster import Cluster
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = b"CANARY1234"


@pytest.fixture(autouse=True)
def _lenient_umask() -> Iterator[None]:
    """Let the process hide nothing: what the node asks for counts."""
    before = os.umask(0)
    yield
    os.umask(before)


def others_may_read(root: Path) -> list[str]:
    """Return what any user of the machine may read below a directory."""
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.lstat().st_mode & stat.S_IRWXO and not path.is_symlink()
    )


def test_a_node_hides_its_files() -> None:
    """Logs, indexes, checkpoints, the metadata log with its passwords, and what a restart makes."""
    secret = {"listener.name.other.plain.sasl.jaas.config": CANARY.decode()}
    with Cluster() as cluster:
        root = Path(cluster.data_dir)
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("t", 1)
            admin.alter_configs({ConfigResource(ResourceType.BROKER, "1"): secret})
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send("t", b"x", partition=0).result(WAIT_S)
        with Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.poll(timeout=WAIT_S)
            consumer.commit()
        cluster.restart()
        names = {path.name for path in root.rglob("*")}
        assert {"meta.properties", "quorum-state", "00000000000000000000.log"} <= names
        assert any(CANARY in path.read_bytes() for path in root.rglob("*.log"))
        assert others_may_read(root) == []


def test_each_way_to_make_a_file(tmp_path: Path) -> None:
    """By each method of a directory that creates one."""
    directory = RealDirectory(str(tmp_path / "parent" / "top"), create=True)
    directory.open("opened", create=True).close()
    directory.make_file("made", 10)
    directory.write_at("written", 0, b"x")
    directory.write_file_atomically("atomic", b"x")
    directory.make("inner/one")
    opened = directory.open_directory("")
    opened.write_file("by-descriptor", b"x")
    opened.close()
    directory.lock(".lock").release()
    found = others_may_read(tmp_path / "parent" / "top")
    assert found == ["inner"]  # a parent, below a root that others cannot enter
    assert others_may_read(tmp_path) == ["parent", "parent/top/inner"]


def test_a_directory_that_others_can_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One made by hand, or by a version that hid nothing, with the command that hides it."""
    (tmp_path / "open").mkdir(0o755)
    (tmp_path / "hidden").mkdir(0o750)
    for name in ("open", "hidden", "absent"):
        RealEnvironment().open_directory(str(tmp_path / name))
    (line,) = caplog.messages
    assert line.endswith(f"chmod -R o-rwx {tmp_path / 'open'}")


def test_the_process_hides_what_it_creates(tmp_path: Path) -> None:
    """The log of the server and the ready file as well; storage format makes hidden directories."""
    settings = tmp_path / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
        f"log.dirs={tmp_path / 'made' / 'data'}\n"
    )
    command = (sys.executable, "-m", "ottla")
    identity = "AAAAAAAAAAAAAAAAAAAAAw"
    formatting = [*command, "storage", "format", "--standalone", "-t", identity, "-c"]
    subprocess.run([*formatting, str(settings)], check=True, capture_output=True)
    assert others_may_read(tmp_path / "made" / "data") == []
    assert not (tmp_path / "made" / "data").stat().st_mode & stat.S_IRWXO
    flags = ["--ready-file", str(tmp_path / "ready"), "--log-file", str(tmp_path / "made/log")]
    with subprocess.Popen(
        [*command, "server-start", *flags, str(settings)], stdout=subprocess.DEVNULL
    ) as node:
        try:
            deadline = time.monotonic() + WAIT_S
            while not (tmp_path / "ready").exists():
                assert node.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert (tmp_path / "made" / "log").exists()
            assert others_may_read(tmp_path) == ["made", "server.properties"]
        finally:
            node.terminate()
