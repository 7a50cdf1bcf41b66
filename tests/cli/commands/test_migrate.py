"""`ottla migrate plan`: a running cluster and files, exit codes, and both forms of output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ottla import Admin, NewTopic
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.testing import Cluster
from tests.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

BASE = """process.roles=broker,controller
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
"""


def write(path: Path, log_dirs: str, *lines: str, node_id: int = 1) -> str:
    text = "".join(f"{line}\n" for line in (f"node.id={node_id}", f"log.dirs={log_dirs}", *lines))
    path.write_text(BASE + text, encoding="utf-8")
    return str(path)


def test_a_running_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ready with status 0; settings that are refused make it 1, with their texts."""
    with Cluster(data_dir=str(tmp_path / "data")) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 2, 1)])
        file = write(tmp_path / "server.properties", cluster.data_dir, "zookeeper.connect=z:2181")
        flags = ("--bootstrap-server", cluster.bootstrap, "--properties", file)
        status, shown, _ = run(capsys, "migrate", "plan", *flags)
        assert status == 0, shown
        assert "Software:                  APIs of Kafka 4.3" in shown
        assert "ignored: node 1" in shown
        assert "Kafka 4 has no ZooKeeper" in shown
        assert "check: cluster: orders: one replica" in shown
        assert f"nohup ottla server-start {file} " in shown
        assert shown.endswith("Ready: no obstacle was found.\n")
        write(
            tmp_path / "server.properties",
            cluster.data_dir,
            "port=9092",
            "metric.reporters=com.acme.Reporter",
            "client.quota.callback.class=com.acme.Quotas",
            "authorizer.class.name=com.acme.Authorizer",
        )
        status, shown, _ = run(capsys, "migrate", "plan", *flags, "--json")
    document = json.loads(shown)
    obstacles = {one["what"] for one in document["findings"] if one["impact"] == "obstacle"}
    assert status == 1
    assert obstacles == {
        "metric.reporters",
        "client.quota.callback.class",
        "authorizer.class.name",
    }
    assert any("set listeners" in one["meaning"] for one in document["findings"])
    assert document["cluster"]["features"]["metadata.version"] == 30


def test_settings_that_were_changed_at_run_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of all brokers and of one, with the file's value; and which Ottla does not apply."""
    with Cluster(data_dir=str(tmp_path / "data")) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            changes = {
                "": {"log.cleaner.threads": "2", "com.acme.unknown": "1"},
                "1": {"num.io.threads": "9", "metric.reporters": ""},
            }
            altered = admin.alter_configs(
                {ConfigResource(ResourceType.BROKER, name): one for name, one in changes.items()}
            )
            assert set(altered.values()) == {None}
        file = write(tmp_path / "server.properties", cluster.data_dir, "num.io.threads=7")
        flags = ("--bootstrap-server", cluster.bootstrap, "--properties", file)
        status, shown, _ = run(capsys, "migrate", "plan", *flags)
        assert status == 0, shown
        settings = (
            "log.cleaner.threads=2, metric.reporters=, min.insync.replicas=1, num.io.threads=9"
        )
        assert f"check: node 1: {settings} (file: 7): dynamic settings" in shown
        assert "dynamic setting com.acme.unknown: Ottla does not apply it: Unknown" in shown
        document = json.loads(run(capsys, "migrate", "plan", *flags, "--json")[1])
    names = [one["name"] for one in document["nodes"][0]["dynamic_settings"]]
    expected = ["com.acme.unknown", "log.cleaner.threads", "metric.reporters"]
    expected += ["min.insync.replicas", "num.io.threads"]
    assert names == expected  # with ELR the controller has stored min.insync.replicas


def test_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Directories are read where they are; ZooKeeper's and unformatted ones are refused."""
    old, empty = tmp_path / "old", tmp_path / "empty"
    for path in (old, empty):
        path.mkdir()
    (old / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    file = write(tmp_path / "s", f"{old},{empty},{tmp_path}/far", "log.level=DEBUG")
    status, shown, _ = run(capsys, "migrate", "plan", "--properties", file)
    assert status == 1
    assert "migrate it to KRaft with Kafka 3.9" in shown
    assert f"{empty}: it has no meta.properties" in shown
    assert f"check: node 1: {tmp_path}/far: the directory is not on this machine" in shown
    assert "log.level: Kafka has no such settings" in shown
    assert "Not ready: 2 obstacles." in shown


def test_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2: usage, a malformed file, a cluster that does not answer."""
    assert run(capsys, "migrate", "plan")[0] == 2
    assert run(capsys, "migrate", "plan", "--properties", str(tmp_path / "none"))[0] == 2
    file = write(tmp_path / "s", str(tmp_path))
    unreachable = ("--bootstrap-server", "127.0.0.1:1", "--command-config", str(tmp_path / "none"))
    status, _, error = run(capsys, "migrate", "plan", *unreachable, "--properties", file)
    assert status == 2
    assert "cannot read" in error
