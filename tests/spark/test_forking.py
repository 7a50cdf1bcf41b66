"""Spark's Python daemons are forked from one process, or are processes of their own without it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from ottla.spark.forking import process, server
from ottla.spark.forking.launcher import ADDRESS
from ottla.spark.processes import DAEMON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.spark.forking.process import ForkServer

PORT_SIZE = 4
SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
BECOME = """
import os, sys
import numpy.random
from ottla.spark.forking import server

before = numpy.random.random()
if os.fork():
    os.wait()
streams = [os.dup(number) for number in range(3)]
environment = {"PYTHONPATH": "/given", "WORD": "one", "PATH": os.environ["PATH"]}
words = ["pyspark.daemon", "pyspark.worker"]
server.become(server.Request(None, streams, words, environment, "/"))
print(numpy.random.random(), os.environ["WORD"], os.getcwd(), sys.path[:2], sys.argv[1:])
"""


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    """Give a running server."""
    found = process.started()
    assert found is not None
    yield found
    found.end()


def start(forks: ForkServer, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    """Run what Spark runs as its Python."""
    return subprocess.Popen(
        [forks.python(), *arguments],
        env={**os.environ, ADDRESS: forks.address, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def port_of(daemon: subprocess.Popen[bytes]) -> int:
    """Return the port that a daemon listens at."""
    assert daemon.stdout is not None
    return int.from_bytes(daemon.stdout.read(PORT_SIZE), "big")


def words(of: psutil.Process | int) -> str:
    """Return a process's command line."""
    return " ".join(psutil.Process(of).cmdline() if isinstance(of, int) else of.cmdline())


def test_a_daemon_is_forked(forks: ForkServer) -> None:
    """It answers with its worker's process id at the port; it ends with its standard input."""
    with start(forks, "-m", DAEMON, "pyspark.worker") as daemon:
        with socket.create_connection(("127.0.0.1", port_of(daemon))) as connection:
            worker = psutil.Process(int.from_bytes(connection.recv(PORT_SIZE), "big"))
            assert server.__name__ in words(worker)
            manager = worker.parent()
            assert manager is not None
            assert "launcher.py" in words(daemon.pid)
        assert daemon.stdin is not None
        daemon.stdin.close()
        assert daemon.wait(60) == 0
        manager.wait(60)


def test_a_worker_without_a_daemon_is_forked(forks: ForkServer) -> None:
    """It connects to the port that it is given, as the source of a stream, and ends by SIGTERM."""
    with socket.create_server(("127.0.0.1", 0)) as spark:
        port = str(spark.getsockname()[1])
        given = {"PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": "secret"}
        with start(forks, "-m", SOURCE_RUNNER, **given) as worker:
            connection, _ = spark.accept()
            with connection:
                assert connection.recv(1024).endswith(b"secret")
                assert "launcher.py" in words(worker.pid)
                worker.terminate()
                assert connection.recv(1) == b""
        assert worker.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("variables", [{"PYTHONHASHSEED": "7"}, {"OMP_NUM_THREADS": "5"}])
def test_what_python_has_read_at_its_start_is_not_changed(
    forks: ForkServer, variables: dict[str, str]
) -> None:
    """A process with another value starts by itself."""
    with start(forks, "-m", DAEMON, "pyspark.worker", **variables) as daemon:
        assert port_of(daemon) > 0
        assert DAEMON in words(daemon.pid)
        assert daemon.stdin is not None
        daemon.stdin.close()


def test_without_a_server_python_runs(forks: ForkServer) -> None:
    """A daemon starts by itself, and the launcher's path is still there."""
    found = [one for one in psutil.Process().children() if server.__name__ in words(one)]
    child = max(found, key=psutil.Process.create_time)  # that of Spark's session may be there, too
    child.kill()
    child.wait()
    with start(forks, "-m", DAEMON, "pyspark.worker") as daemon:
        assert port_of(daemon) > 0
        assert DAEMON in words(daemon.pid)
        assert daemon.stdin is not None
        daemon.stdin.close()


def test_other_arguments_run_python(forks: ForkServer) -> None:
    """Spark asks for a version, too."""
    with start(forks, "-c", "import sys; print(sys.executable)") as other:
        out, _ = other.communicate()
    assert out.decode().strip() == sys.executable


def test_bytes_that_are_no_request_do_not_end_it(forks: ForkServer) -> None:
    """Too long, no JSON, without variables, not of PySpark, or without streams."""
    foreign = b'{"environment": {}, "directory": "/", "arguments": ["antigravity"]}'
    for data in (
        b"",
        b"\xff" * 8,
        b"\0\0\0\1{",
        b"\0\0\0\2{}",
        b"\0\0\0\x12" + b'{"environment":{}}',
        len(foreign).to_bytes(4, "big") + foreign,
    ):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(forks.address)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    test_a_daemon_is_forked(forks)


def test_it_ends_with_its_parent() -> None:
    """Its directory is deleted, also when the parent is killed."""
    program = "from ottla.spark.forking import process; import time\n"
    program += "print(process.started().address, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        address = Path(os.fsdecode(parent.stdout.readline().strip()))
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
    child.wait(60)
    assert not address.parent.exists()


def test_a_fork_is_as_a_process_of_its_own() -> None:
    """What it is given is the caller's; its random numbers are its own."""
    done = subprocess.run(
        [sys.executable, "-c", BECOME], capture_output=True, text=True, check=True
    )
    found = [line.partition(" ") for line in done.stdout.splitlines()]
    assert len({number for number, _, _ in found}) == 2
    assert {rest for _, _, rest in found} == {"one / ['/', '/given'] ['pyspark.worker']"}


def test_there_is_none_where_its_address_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory for temporary files may have a long path."""
    with tempfile.TemporaryDirectory() as directory:
        long = Path(directory, "d" * 100)
        long.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(long))
        assert process.started() is None
        assert not [*long.iterdir()]


def test_its_files_are_with_those_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever kills a session with all its processes deletes that directory, and no other one.

    Where the path of its address would be too long there, they are with other temporary files.
    """
    with tempfile.TemporaryDirectory() as directory:
        short, long, others = (Path(directory, name) for name in ("s", "d" * 100, "o"))
        for one in (short, long, others):
            one.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(others))
        for given, used in ((short, short), (long, others), (None, others)):
            forks = process.started(given)
            assert forks is not None
            assert Path(forks.address).parent.parent == used
            forks.end()
        assert not [*short.iterdir(), *long.iterdir(), *others.iterdir()]
