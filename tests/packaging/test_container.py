"""The files of the container image, run outside a container."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.cli.main import COMMANDS
from ottla.testing.cluster import Cluster
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FILES = ROOT / "packaging" / "container"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class Container:
    """The entry point in a directory that has nothing but `ottla` on its path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.ready = root / "ready.json"
        tools = root / "bin"
        tools.mkdir()
        (tools / "ottla").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n')
        (tools / "ottla").chmod(0o755)
        self.environ = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT / "src")),
            "HOME": str(root),
            "OTTLA_CONFIG_FILE": str(root / "none.properties"),
            "OTTLA_READY_FILE": str(self.ready),
            "OTTLA_METRICS_LISTENER": "127.0.0.1:0",
            "KAFKA_LOG_DIRS": str(self.data),
        }
        self.process: subprocess.Popen[str] | None = None

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the entry point to its end."""
        return subprocess.run(
            [str(FILES / "entrypoint"), *arguments],
            env={**self.environ, **variables},
            capture_output=True,
            text=True,
            cwd=self.root,
            check=False,
        )

    def start(self, **variables: str) -> dict[str, str]:
        """Start a node and wait for its ready file."""
        self.process = subprocess.Popen(
            [str(FILES / "entrypoint")],
            env={**self.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.root,
        )
        deadline = time.monotonic() + WAIT_S
        while not self.ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                assert self.process.stdout is not None
                raise AssertionError(self.process.stdout.read())
            time.sleep(0.02)
        found: dict[str, str] = json.loads(self.ready.read_text())
        return found

    def stop(self) -> tuple[int, str]:
        """Stop as the container engine does; return the status and what was printed."""
        assert self.process is not None
        self.process.terminate()
        printed, _ = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, printed

    def health(self) -> tuple[int, str]:
        """Run the health check."""
        done = subprocess.run(
            [sys.executable, str(FILES / "health")],
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    """Give an entry point."""
    found = Container(tmp_path)
    yield found
    if found.process is not None and found.process.poll() is None:
        found.process.kill()
        found.process.communicate()


def test_a_node_as_compose_files_describe_it(container: Container) -> None:
    """Formats with CLUSTER_ID, serves, is healthy, stops in order; the next start keeps all."""
    variables = {
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_NODE_ID": "5",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "5@127.0.0.1:9093",
        "KAFKA_JMX_PORT": "9101",
    }
    assert container.health() == (1, "the node has not started yet, or has stopped\n")
    ready = container.start(**variables)
    assert ready["cluster_id"] == CLUSTER_ID
    assert container.health() == (0, "")
    status, printed = container.stop()
    assert status == 0
    assert "KAFKA_JMX_PORT: ignored" in printed
    assert "SIGTERM received: the node stops" in printed
    assert container.health()[0] == 1
    assert f"cluster.id={CLUSTER_ID}" in (container.data / "meta.properties").read_text()
    del variables["CLUSTER_ID"]
    assert container.start(**variables)["cluster_id"] == CLUSTER_ID
    assert container.stop()[0] == 0


@pytest.mark.soak
def test_what_a_container_is_refused_with(container: Container) -> None:
    """One line, status 1: a directory of another cluster, no right to write, a wrong setting."""
    listeners = {"KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}
    container.start(CLUSTER_ID=CLUSTER_ID, **listeners)
    container.stop()
    other = container.run(CLUSTER_ID="MkU3OEVBNTcwNTJENDM2Qg", **listeners)
    assert other.returncode == 1
    assert "MkU3OEVBNTcwNTJENDM2Qg" in other.stderr
    assert CLUSTER_ID in other.stderr
    unwritable = container.run(KAFKA_LOG_DIRS="/proc/none", **listeners)
    assert unwritable.returncode == 1
    assert "cannot format /proc/none" in unwritable.stderr
    assert "give this user a directory to write to" in unwritable.stderr
    wrong = container.run(KAFKA_NODE_ID="one", **listeners)
    assert wrong.returncode == 1
    assert "(KAFKA_NODE_ID)" in wrong.stderr
    for done in (other, unwritable, wrong):
        assert "Traceback" not in done.stderr


@pytest.mark.soak
def test_without_variables_the_node_serves_localhost(container: Container) -> None:
    """The listeners of Kafka's image; other arguments are flags of server-start."""
    done = container.run("--check")
    assert (done.returncode, done.stdout) == (0, "The configuration is valid.\n")


def test_other_commands_run_as_they_are(container: Container) -> None:
    """`docker run ottla ottla …`, and a shell."""
    done = container.run("ottla", "--version")
    assert done.stdout.startswith("Ottla ")
    assert container.run("echo", "hello").stdout == "hello\n"


def test_tools_have_the_names_and_places_of_kafkas(container: Container) -> None:
    """/opt/kafka/bin/kafka-topics.sh and kafka-topics, for scripts and health checks."""
    scripts, names = container.root / "scripts", container.root / "names"
    scripts.mkdir()
    names.mkdir()
    subprocess.run(
        [str(FILES / "kafka-tool"), "--link", str(scripts), str(names)],
        env=container.environ,
        check=True,
    )
    own = {"config", "demo", "dev-cluster", "log-repair", "quickstart", "end-to-end-latency"}
    own |= {
        "backup",
        "branch",
        "connect",
        "dev",
        "migrate",
        "restore",
        "sql",
        "streams",
        "tables",
        "verify",
    }
    own.add("transactional-message-copier")  # Kafka has a class, and no script
    expected = {
        name if name.startswith("connect-") else f"kafka-{name}"
        for name in COMMANDS
        if name not in own
    }
    expected.add("kafka-e2e-latency")
    assert {one.name for one in names.iterdir()} == expected
    assert {one.name for one in scripts.iterdir()} == {f"{one}.sh" for one in expected}
    with Cluster() as cluster:
        listed = subprocess.run(
            [str(scripts / "kafka-topics.sh"), "--list", "--bootstrap-server", cluster.bootstrap],
            env=container.environ,
            capture_output=True,
            text=True,
            check=True,
        )
    assert listed.stdout == ""


def test_the_image_runs_without_rights() -> None:
    """A user that is not root, files that group 0 may write, a health check, no shell around."""
    text = (FILES / "Containerfile").read_text(encoding="utf-8")
    assert re.search(r"^USER 1000$", text, re.MULTILINE)
    assert "chgrp -R 0" in text
    assert "chmod -R g=u" in text
    assert 'HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["health"]' in text
    assert 'ENTRYPOINT ["entrypoint"]' in text
    for source in re.findall(r"^COPY (?:--chmod=755 )?((?!--from)\S.*) \S+$", text, re.MULTILINE):
        for path in source.split():
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("image", ["container", "spark"])
def test_the_image_is_built_from_all_that_the_package_needs(image: str) -> None:
    """What pyproject.toml names is copied before the install."""
    text = (ROOT / "packaging" / image / "Containerfile").read_text(encoding="utf-8")
    (copied,) = re.findall(r"^COPY (pyproject.*) \./$", text, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = ["pyproject.toml", "setup.py", project["readme"], *project.get("license-files", [])]
    assert sorted(copied.split()) == sorted(needed)


def test_the_image_of_spark_runs_executors_and_commands() -> None:
    """Not as root; its entry point, which tests/spark runs for executors, runs other commands."""
    directory = ROOT / "packaging" / "spark"
    text = (directory / "Containerfile").read_text(encoding="utf-8")
    assert re.search(r"^USER 185$", text, re.MULTILINE)
    (script,) = re.findall(r"^COPY --chmod=755 (\S+) /opt/ottla/bin/$", text, re.MULTILINE)
    done = subprocess.run([ROOT / script, "echo", "done"], capture_output=True, check=True)
    assert done.stdout == b"done\n"


def test_the_variables_of_the_compose_file_are_valid(container: Container) -> None:
    """What it gives a node passes the check."""
    text = (FILES / "compose.yaml").read_text(encoding="utf-8")
    block = text.partition("environment:\n")[2].partition("    volumes:")[0]
    variables = dict(re.findall(r"^ +([A-Z_]+): (.+)$", block, re.MULTILINE))
    assert len(variables) > 8
    done = container.run("--check", **variables)
    assert (done.returncode, done.stdout) == (0, "The configuration is valid.\n"), done.stderr
