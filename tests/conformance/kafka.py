"""The real Kafka 4.3.0, for tests to compare with: its jars, its tools, its broker.

Kafka: bin/kafka-run-class.sh, bin/kafka-storage.sh, bin/kafka-server-start.sh.

The jars come from Maven by `pom.xml` into a cache outside the repository, or from the directory in
OTTLA_KAFKA_LIBS. Without Java and Maven these tests are skipped unless CI=true.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zipfile
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol import frames
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.types import FileSlice
from tests.ports import free_ports
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.types import SendItem

HERE = Path(__file__).parent
VERSION = "4.3.0"
START_TIMEOUT_S = 180.0
_FAST_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class KafkaMissing(Exception):
    """Kafka is not available; the message has the reason."""


class Kafka:
    """An installation: a directory of jars and the `java` command."""

    def __init__(self, libraries: Path, cache: Path) -> None:
        self.libraries = libraries
        self.cache = cache
        self.java = _program("java")

    def jar(self, name: str) -> Path:
        """Return one of Kafka's own jars: "clients", "metadata", "group-coordinator"."""
        return self.libraries / f"kafka-{name}-{VERSION}.jar"

    @property
    def tiers_jar(self) -> Path:
        """The jar of tests that has LocalTieredStorage."""
        return self.libraries / f"kafka-storage-{VERSION}-test.jar"

    def definitions(self) -> dict[str, dict[str, Any]]:
        """Return all live message definitions by name, each with the jar's name as "jar".

        Kafka Streams keeps messages of its own in consumer protocol fields: no node reads them.
        """
        found = {}
        for jar in sorted(self.libraries.glob(f"kafka-*-{VERSION}.jar")):
            if jar.name.startswith("kafka-streams"):
                continue
            with zipfile.ZipFile(jar) as archive:
                for entry in archive.namelist():
                    if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", entry):
                        definition = _read_commented_json(archive.read(entry).decode())
                        definition["jar"] = jar.name.removeprefix("kafka-").partition("-4.")[0]
                        found[definition["name"]] = definition
        return {name: one for name, one in found.items() if one["validVersions"] != "none"}

    def compile(self, source: Path) -> Path:
        """Compile a Java file without a package once; return the directory of its classes."""
        digest = sha256(source.read_bytes()).hexdigest()[:16]
        classes = self.cache / "classes" / f"{source.stem}-{digest}"
        if not classes.is_dir():
            classes.parent.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(dir=classes.parent))
            path = f"{self.libraries}/*"
            command = [_program("javac"), "-nowarn", "-cp", path, "-d", str(made), str(source)]
            subprocess.run(command, check=True)
            _rename_unless_there(made, classes)
        return classes

    def command(
        self, main_class: str, *arguments: str, classes: Path | None = None, heap_mb: int = 256
    ) -> list[str]:
        """Return the command line that runs a class of the jars or of `classes`."""
        path = f"{self.libraries}/*" if classes is None else f"{classes}:{self.libraries}/*"
        return [self.java, *_FAST_JVM, f"-Xmx{heap_mb}m", "-cp", path, main_class, *arguments]

    def run(
        self,
        main_class: str,
        *arguments: str,
        classes: Path | None = None,
        stdin: str | None = None,
        timeout_s: float = 200.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a class to its end and return its output; raise on failure when `check`."""
        done = subprocess.run(
            self.command(main_class, *arguments, classes=classes),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{main_class} failed: {done.stdout}\n{done.stderr}")
        return done


class RealKafka:
    """A running Kafka 4.3.0: broker and controller in one process, with its own directory."""

    def __init__(self, kafka: Kafka, directory: Path, properties: dict[str, str]) -> None:
        self.kafka = kafka
        self.directory = directory
        self.log_dir = directory / "logs"
        self.port, self.controller_port = free_ports(2)
        self.process: subprocess.Popen[bytes] | None = None
        self.classes: Path | None = None
        self.properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},"
            f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "0",
            **properties,
        }

    @property
    def bootstrap(self) -> str:
        """host:port of the PLAINTEXT listener."""
        return f"127.0.0.1:{self.port}"

    @property
    def properties_file(self) -> Path:
        """The server.properties that the node is started with."""
        return self.directory / "server.properties"

    def write_properties(self) -> None:
        """Rewrite server.properties after a change to `properties`."""
        lines = (f"{key}={value}\n" for key, value in self.properties.items())
        self.properties_file.write_text("".join(lines))

    def format(self, *arguments: str) -> None:
        """Format the log directory as a cluster of this one node."""
        self.write_properties()
        cluster_id = self.kafka.run("kafka.tools.StorageTool", "random-uuid").stdout.strip()
        command = ("format", "-t", cluster_id, "-c", str(self.properties_file), "--standalone")
        self.kafka.run("kafka.tools.StorageTool", *command, *arguments, classes=self.classes)

    def format_to_join(
        self, cluster_id: str, controller: tuple[str, int], node_id: int, role: str, *arguments: str
    ) -> None:
        """Format the log directory as a node of one role in a cluster that runs elsewhere."""
        ends = {
            "broker": ("PLAINTEXT", self.port),
            "controller": ("CONTROLLER", self.controller_port),
        }
        listener, port = ends[role]
        self.properties |= {
            "process.roles": role,
            "node.id": str(node_id),
            "listeners": f"{listener}://127.0.0.1:{port}",
            "controller.quorum.bootstrap.servers": f"{controller[0]}:{controller[1]}",
        }
        self.write_properties()
        command = ("format", "-t", cluster_id, "-c", str(self.properties_file), *arguments)
        self.kafka.run("kafka.tools.StorageTool", *command)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the node, and do not wait until it responds."""
        self.write_properties()
        command = self.kafka.command(
            "kafka.Kafka", str(self.properties_file), classes=self.classes, heap_mb=512
        )
        with (self.directory / "server.log").open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=self.directory, start_new_session=True
            )
        return self.process

    def start(self) -> None:
        """Start the node and wait until it responds."""
        process = self.launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(self.port):
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                log = (self.directory / "server.log").read_text()
                raise AssertionError(f"Kafka did not start: {log[-4000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the node cleanly, so that it writes its clean-shutdown marker."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the node, as a crash of the process would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)
        self.process = None

    def tool(
        self, main_class: str, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> str:
        """Run one of Kafka's tools against this node; return its standard output."""
        arguments = ("--bootstrap-server", self.bootstrap, *arguments)
        return self.kafka.run(main_class, *arguments, stdin=stdin, check=check).stdout


@contextmanager
def running_kafka(
    kafka: Kafka,
    directory: Path,
    properties: dict[str, str] | None = None,
    classes: Path | None = None,
) -> Iterator[RealKafka]:
    """Format a node in `directory` and run it within the block; `classes` has plug-ins."""
    node = RealKafka(kafka, directory, properties or {})
    node.classes = classes
    try:
        node.format()
        node.start()
        yield node
    finally:
        node.kill()


def find_kafka() -> Kafka:
    """Return the installation, fetched on first use; raises KafkaMissing."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = base / "ottla" / f"kafka-{VERSION}"
    given = os.environ.get("OTTLA_KAFKA_LIBS")
    libraries = Path(given) if given else cache / "libs"
    if given and not libraries.is_dir():
        raise KafkaMissing(f"OTTLA_KAFKA_LIBS={given} is no directory")
    kafka = Kafka(libraries, cache)
    added_last = libraries / f"connect-mirror-{VERSION}.jar"
    if not added_last.is_file():
        if given:
            raise KafkaMissing(f"OTTLA_KAFKA_LIBS={given} has no {added_last.name}")
        _fetch(libraries)
    return kafka


def kafka_or_skip() -> Kafka:
    """Return the installation; without one, fail in CI and skip elsewhere."""
    try:
        return find_kafka()
    except KafkaMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"conformance tests need real Kafka: {missing}")
        pytest.skip(f"no real Kafka: {missing}")


def _fetch(libraries: Path) -> None:
    maven = _program("mvn")
    libraries.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=libraries.parent))
    goal = "dependency:copy-dependencies"
    command = [maven, "-q", "-B", "-f", str(HERE / "pom.xml"), goal, f"-DoutputDirectory={made}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        shutil.rmtree(made)
        raise KafkaMissing(f"Maven failed: {(done.stdout + done.stderr)[-500:]}")
    if libraries.is_dir():  # fetched before a jar was added to pom.xml
        for jar in made.iterdir():
            jar.replace(libraries / jar.name)
        made.rmdir()
    else:
        _rename_unless_there(made, libraries)


def _rename_unless_there(made: Path, target: Path) -> None:
    """Move a finished directory to its place; another process may have been faster."""
    try:
        made.rename(target)
    except OSError:
        shutil.rmtree(made)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise KafkaMissing(f"{name} is not installed")
    return found


def _read_commented_json(text: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return read


def exchange(port: int, frame: bytes) -> bytes:
    """Send one complete request frame and return the response frame without its size."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        connection.sendall(frame)
        with connection.makefile("rb") as stream:
            size = stream.read(4)
            return stream.read(int.from_bytes(size, "big"))


def answers(port: int) -> bool:
    """Whether a node on this port answers an ApiVersions request."""
    request = frames.encode_request(ApiVersionsRequest(), 0, 1, "probe")
    try:
        return len(exchange(port, join(request))) > 0
    except OSError:
        return False


def join(parts: list[SendItem]) -> bytes:
    """Return an encoded frame as one piece."""
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
