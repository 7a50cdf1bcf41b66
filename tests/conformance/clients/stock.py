"""Third-party clients as programs with one command line, built on first use in a cache.

    produce BOOTSTRAP TOPIC COUNT CODECS FIRST PAUSE_MS
        COUNT records with each of the codecs (separated by commas), numbered from FIRST; says
        "PARTITION OFFSET VALUE" (kafkajs: "acknowledged VALUE") for each acknowledgement
    consume BOOTSTRAP TOPIC GROUP COUNT
        reads as a member of the group and commits what it said; says "assigned PARTITION…" and
        "PARTITION OFFSET VALUE"; leaves after COUNT records, or (COUNT 0) at SIGTERM
    offset BOOTSTRAP TOPIC PARTITION TIMESTAMPS
        says the first offset at or after each of the times, -1 where there is none
    transact BOOTSTRAP TOPIC ID COUNT
        COUNT transactions of the transactional id; transaction n has the records 3n to 3n + 2,
        record r in partition r % 2, and commits offset n + 1 of partition 0 for the group ID; those
        with n % 3 == 2 are aborted; says "committed N" or "aborted N"
    zombie BOOTSTRAP TOPIC ID
        begins a transaction with record 0 in partition 0; says "open" when it is stored, commits at
        SIGTERM, and says "committed" or "fenced"

`consume` reads with the isolation level of STOCK_ISOLATION; the Java client and librdkafka join
with the group protocol of STOCK_PROTOCOL.

Record n has the value "%08d" % n and a hundred dots, the key n, and the time 1700000000 s + n s.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ottla import Consumer, TopicPartition
from tests.conformance.kafka import KafkaMissing, find_kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class ClientMissing(Exception):
    """A client is not available; the message has the reason."""


class Client(NamedTuple):
    """A third-party client: the command and environment of its program."""

    name: str
    command: Callable[[], list[str]]
    environment: Mapping[str, str] = {}
    says_offsets: bool = True
    past_the_end: int | None = -1  # result of `offset` after the last record; None: the log end
    codecs: tuple[str, ...] = CODECS
    has_transactions: bool = True


class Said(NamedTuple):
    """A record reported by a program: its number and place (None if not reported)."""

    partition: int | None
    offset: int | None
    number: int


class Program:
    """A running client and its output so far."""

    def __init__(self, client: Client, *arguments: str) -> None:
        self.name = f"{client.name} {arguments[0]}"
        self.lines: list[str] = []
        self._problems: list[str] = []
        self._process = subprocess.Popen(
            [*client.command(), *arguments],
            cwd=ROOT,
            env={**os.environ, **client.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._readers = [
            threading.Thread(target=_collect, args=pair, daemon=True)
            for pair in (
                (self._process.stdout, self.lines),
                (self._process.stderr, self._problems),
            )
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._end(60)

    def _end(self, timeout_s: float) -> None:
        self._process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def wait(self, timeout_s: float = 180.0) -> list[str]:
        """Wait for a successful end; return the output."""
        self._end(timeout_s)
        assert self._process.returncode == 0, self.report()
        return self.lines

    def leave(self) -> None:
        """Stop the program and wait for its end."""
        self._process.send_signal(signal.SIGTERM)
        self._end(90)

    def wait_until(self, wanted: Callable[[], bool], timeout_s: float = 180.0) -> None:
        """Wait until the output satisfies the condition."""
        deadline = time.monotonic() + timeout_s
        while not wanted():
            assert time.monotonic() < deadline, f"too late: {self.report()}"
            assert self._process.poll() is None or wanted(), self.report()
            time.sleep(0.02)

    def said(self) -> list[Said]:
        """Return the records reported so far."""
        return [one for line in list(self.lines) if (one := _read(line)) is not None]

    def numbers(self) -> list[int]:
        """Return the numbers of the records reported so far."""
        return [one.number for one in self.said()]

    def assigned(self) -> list[int]:
        """Return the partitions that this member has now."""
        stopped = [line for line in list(self.lines) if line.startswith("assigned")]
        return [int(word) for word in stopped[-1].split()[1:]] if stopped else []

    def report(self) -> str:
        """Return the state of the program for a failure message."""
        end = "\n".join([*self.lines[-5:], *self._problems[-30:]])
        return f"{self.name}: status {self._process.poll()}\n{end}"


def _collect(stream: Iterable[str], lines: list[str]) -> None:
    lines.extend(line.rstrip("\n") for line in stream)


def _read(line: str) -> Said | None:
    words = line.split()
    if len(words) == 3 and words[0].isdigit():
        return Said(int(words[0]), int(words[1]), int(words[2].rstrip(".")))
    if len(words) == 2 and words[0] == "acknowledged":
        return Said(None, None, int(words[1].rstrip(".")))
    return None


def run(client: Client, *arguments: object, timeout_s: float = 180.0) -> Program:
    """Run a command of a client to its successful end."""
    with Program(client, *map(str, arguments)) as program:
        program.wait(timeout_s)
    return program


def records_in(bootstrap: str, topic: str, partitions: int) -> dict[tuple[int, int], int]:
    """Read a whole topic with Ottla's own consumer: (partition, offset) to the record's number."""
    found = {}
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        parts = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        while any(consumer.position(part) < ends[part] for part in parts):
            for one in consumer.poll(1.0):
                found[one.partition, one.offset] = int(one.value.rstrip(b"."))
    return found


def places(said: Iterable[Said]) -> dict[tuple[int | None, int | None], int]:
    """Return the place of each record as reported by the client."""
    return {(one.partition, one.offset): one.number for one in said}


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "ottla" / "stock-clients"


def _built(name: str, sources: list[Path], build: Callable[[Path], None]) -> Path:
    """Return the cache directory that `build` filled from exactly these sources."""
    digest = sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()[:16]
    directory = _cache() / f"{name}-{digest}"
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        made = directory.with_name(f"{directory.name}.{os.getpid()}")
        made.mkdir(exist_ok=True)
        try:
            build(made)
            made.rename(directory)
        except OSError:  # another process was faster
            shutil.rmtree(made, ignore_errors=True)
    return directory


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None and name == "go":
        found = shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        raise ClientMissing(f"{name} is not installed")
    return found


def _call(command: list[str], directory: Path) -> None:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        raise ClientMissing(f"{command[0]} failed: {(done.stdout + done.stderr)[-500:]}")


def java_program(name: str) -> Callable[[], list[str]]:
    """Return the command of a class in `java/`."""

    @cache
    def command() -> list[str]:
        try:
            kafka = find_kafka()
            classes = kafka.compile(HERE / "java" / f"{name}.java")
        except KafkaMissing as missing:
            raise ClientMissing(str(missing)) from missing
        return kafka.command(name, classes=classes)

    return command


def node_program(name: str) -> Callable[[], list[str]]:
    """Return the command of a script in `node/`, with the libraries installed."""

    @cache
    def command() -> list[str]:
        node, npm = _program("node"), _program("npm")
        names = ("client.js", "logins.js", "package.json", "package-lock.json")
        sources = [HERE / "node" / one for one in names]

        def build(directory: Path) -> None:
            for source in sources:
                shutil.copy(source, directory)
            _call([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], directory)

        return [node, str(_built("node", sources, build) / name)]

    return command


def go_program(directory: str) -> Callable[[], list[str]]:
    """Return the command of a Go program."""

    @cache
    def command() -> list[str]:
        go = _program("go")
        names = ("main.go", "logins.go", "go.mod", "go.sum")
        sources = [HERE / directory / name for name in names]

        def build(made: Path) -> None:
            _call(
                [go, "build", "-buildvcs=false", "-o", str(made / "stock"), "."], HERE / directory
            )

        return [str(_built(directory, sources, build) / "stock")]

    return command


def python_program(library: str, module: str) -> Callable[[], list[str]]:
    """Return the command of a module here that needs a library."""

    def command() -> list[str]:
        if find_spec(library) is None:
            raise ClientMissing(f"the library {library} is not installed")
        return [sys.executable, "-m", f"tests.conformance.clients.{module}"]

    return command


_KAFKA_PYTHON = python_program("kafka", "kafka_python_client")
CLIENTS = (
    Client("java", java_program("StockClient")),
    Client("confluent-kafka", python_program("confluent_kafka", "confluent_kafka_client")),
    Client("kafka-python", _KAFKA_PYTHON, has_transactions=False),
    Client("kafka-python-2.1", _KAFKA_PYTHON, {"STOCK_API_VERSION": "2.1"}, has_transactions=False),
    Client(
        "kafka-python-0.11",
        _KAFKA_PYTHON,
        {"STOCK_API_VERSION": "0.11"},
        codecs=CODECS[:-1],
        has_transactions=False,
    ),
    Client("aiokafka", python_program("aiokafka", "aiokafka_client")),
    Client("kafkajs", node_program("client.js"), says_offsets=False, past_the_end=None),
    Client("franz-go", go_program("go")),
    Client("sarama", go_program("sarama")),
)


def client_or_skip(client: Client) -> Client:
    """Build a client; if it is not available, fail in CI and skip elsewhere."""
    try:
        client.command()
    except ClientMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"conformance tests need {client.name}: {missing}")
        pytest.skip(f"no {client.name}: {missing}")
    return client
