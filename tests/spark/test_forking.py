"""Spark's Python daemons are forked from one process, or are processes of their own without it."""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.soaks import with_soaks

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from ottla.spark.forking import process, server
from ottla.spark.forking.launcher import ADDRESS
from ottla.spark.processes import DAEMON
from tests.waits import wait_for

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
for _ in range(2):
    if not os.fork():
        break
else:
    os.wait(), os.wait()
found = numpy.random.random(), os.environ["WORD"], os.getcwd(), sys.path[:2], sys.argv[1:]
os.write(1, (" ".join(map(str, found)) + "\\n").encode())  # all at once: others write, too
"""
WORKER = """
import os, sys

def main(infile, outfile):
    outfile.write(repr([os.environb[b"my.name"], sys.path]).encode())
    outfile.flush()
    sys.exit(1)
"""
STREAMLESS = """
import os, subprocess, sys
from ottla.spark.forking import process
from ottla.spark.forking.launcher import ADDRESS

forks = process.started()
python, address = (sys.executable, "") if forks is None else (forks.python, forks.address)
daemon = subprocess.Popen(
    [python, "-m", "pyspark.daemon", "pyspark.worker"],
    env={**os.environ, ADDRESS: address},
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
)
port = int.from_bytes(daemon.stdout.read(4), "big")
daemon.stdin.close()
if forks is not None:
    forks.end()
sys.exit(0 if 0 < port < 65536 else 3)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    """Give a running server that the tests share."""
    yield from _running()


@pytest.fixture
def own_forks() -> Iterator[ForkServer]:
    """Give a server for a test that ends it."""
    yield from _running()


def _running() -> Iterator[ForkServer]:
    found = process.started()
    assert found is not None
    yield found
    found.end()


def environment(forks: ForkServer, **variables: str) -> dict[str, str]:
    """Return what Java gives its Python; pytest names each phase of a test in a variable."""
    given = {**os.environ, ADDRESS: forks.address, **variables}
    return {name: value for name, value in given.items() if name != "PYTEST_CURRENT_TEST"}


def start(forks: ForkServer, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    """Run what Spark runs as its Python."""
    return subprocess.Popen(
        [forks.python, *arguments],
        env=environment(forks, **variables),
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


def is_forked(forks: ForkServer, *modules: str, **variables: str) -> bool:
    """Whether a daemon for modules with this environment is forked."""
    with start(forks, "-m", DAEMON, *modules, **variables) as daemon:
        assert port_of(daemon) > 0
        found = forks.python in words(daemon.pid)
        assert daemon.stdin is not None
        daemon.stdin.close()
    return found


def test_a_daemon_is_forked(forks: ForkServer) -> None:
    """It answers with its worker's process id at the port; it ends with its standard input."""
    with start(forks, "-m", DAEMON, "pyspark.worker") as daemon:
        with socket.create_connection(("127.0.0.1", port_of(daemon))) as connection:
            worker = psutil.Process(int.from_bytes(connection.recv(PORT_SIZE), "big"))
            assert server.__name__ in words(worker)
            manager = worker.parent()
            assert manager is not None
            assert forks.python in words(daemon.pid)
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
                assert forks.python in words(worker.pid)
                worker.terminate()
                assert connection.recv(1) == b""
        assert worker.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    "variables",
    with_soaks(
        [
            {"PYTHONHASHSEED": "7"},
            {"OMP_NUM_THREADS": "5"},
            {"OPENBLAS_NUM_THREADS": "3"},
            {"PYTHONOPTIMIZE": "1"},
            {"PYSPARK_ENABLE_NAMEDTUPLE_PATCH": "1"},
        ]
    ),
)
def test_what_python_has_read_at_its_start_is_not_changed(
    forks: ForkServer, variables: dict[str, str]
) -> None:
    """A process with another value starts by itself."""
    assert not is_forked(forks, server.TASKS, **variables)


def test_variables_of_tasks_are_there_from_the_start() -> None:
    """Those of spark.executorEnv; processes that are no tasks are forked without them."""
    given = {"spark.executorEnv.OPENBLAS_NUM_THREADS": "3", "spark.executorEnv.WORD": "one"}
    forks = process.started(variables=process.of_tasks(given))
    assert forks is not None
    of_task = {"OPENBLAS_NUM_THREADS": "3", "WORD": "one", "OMP_NUM_THREADS": "1"}
    assert is_forked(forks, server.TASKS, **of_task)
    assert is_forked(forks, "pyspark.sql.worker.lookup_data_sources")
    assert not is_forked(forks, server.TASKS, **{**of_task, "WORD": "two"})
    forks.end()


@pytest.mark.soak
def test_a_driver_may_have_a_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark gives another one to its tasks, and the driver's to processes that plan."""
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    forks = process.started()
    assert forks is not None
    assert is_forked(forks, server.TASKS, OMP_NUM_THREADS="1")
    assert not is_forked(forks, server.TASKS, OMP_NUM_THREADS="4")
    assert is_forked(forks, "pyspark.sql.worker.lookup_data_sources", OMP_NUM_THREADS="4")
    forks.end()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"OMP_NUM_THREADS": "1"}),
        ({"spark.task.cpus": "2"}, {"OMP_NUM_THREADS": "2"}),
        (
            {"spark.task.cpus": "2", "spark.executorEnv.OMP_NUM_THREADS": "8"},
            {"OMP_NUM_THREADS": "8"},
        ),
        ({"spark.executorEnv.a.b": "c"}, {"OMP_NUM_THREADS": "1", "a.b": "c"}),
        ({"spark.executorEnv.PYTHONOPTIMIZE": "1"}, {"OMP_NUM_THREADS": "1"}),
        ({"spark.executorEnv.LD_PRELOAD": "x.so"}, {"OMP_NUM_THREADS": "1"}),
    ],
)
def test_which_variables_a_server_has_for_tasks(
    config: dict[str, str], expected: dict[str, str]
) -> None:
    """Not those by which Python would start otherwise in processes that are no tasks."""
    assert process.of_tasks(config) == expected


def test_without_a_server_python_runs(own_forks: ForkServer) -> None:
    """A daemon starts by itself, and the launcher's path is still there."""
    found = [one for one in psutil.Process().children() if server.__name__ in words(one)]
    child = max(found, key=psutil.Process.create_time)  # that of Spark's session may be there, too
    child.kill()
    child.wait()
    with start(own_forks, "-m", DAEMON, "pyspark.worker") as daemon:
        assert port_of(daemon) > 0
        assert own_forks.python not in words(daemon.pid)
        assert daemon.stdin is not None
        daemon.stdin.close()


def test_other_arguments_run_python(forks: ForkServer) -> None:
    """Spark asks for a version, too."""
    with start(forks, "-c", "import sys; print(sys.executable)") as other:
        out, _ = other.communicate()
    assert out.decode().strip() == sys.executable


def test_bytes_that_are_no_request_do_not_end_it(forks: ForkServer) -> None:
    """Too long, no JSON, without variables, not of PySpark, or without streams."""
    no_text = b'{"environment": {}, "directory": "/", "arguments": [1]}'
    foreign = b'{"environment": {}, "directory": "/", "arguments": ["antigravity"]}'
    for data in (
        b"",
        b"\xff" * 8,
        b"\0\0\0\1{",
        b"\0\0\0\2{}",
        b"\0\0\0\x12" + b'{"environment":{}}',
        len(foreign).to_bytes(4, "big") + foreign,
        len(no_text).to_bytes(4, "big") + no_text,
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
    """What it is given is the caller's; its random numbers are its own, and its workers' theirs."""
    done = subprocess.run(
        [sys.executable, "-c", BECOME], capture_output=True, text=True, check=True
    )
    found = [line.partition(" ") for line in done.stdout.splitlines()]
    assert len({number for number, _, _ in found}) == 2 * 3
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


def test_a_socket_may_be_impossible_where_the_session_has_its_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its directory is another one then; a relative one has an absolute path."""
    monkeypatch.chdir(tmp_path)
    Path("s").mkdir()
    for given, is_used in ((Path("s"), True), (Path("missing"), False)):
        forks = process.started(given)
        assert forks is not None
        address = Path(forks.address)
        assert address.is_absolute()
        assert (address.parent.parent == given.absolute()) is is_used
        forks.end()


def test_a_launcher_that_waits_no_more_keeps_its_streams(forks: ForkServer) -> None:
    """It is Python by then: a second daemon would write and read the same streams."""
    streams = [os.pipe(), os.pipe(), os.pipe()]
    given = [streams[0][0], streams[1][1], streams[2][1]]
    request = {"arguments": [DAEMON], "environment": {}, "directory": "/"}
    data = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(forks.address)
        socket.send_fds(connection, [len(data).to_bytes(4, "big")], given)
        connection.sendall(data)
    for one in given:
        os.close(one)
    assert os.read(streams[1][0], PORT_SIZE) == b""
    for one in (streams[0][1], streams[1][0], streams[2][0]):
        os.close(one)


@pytest.mark.parametrize("closed", with_soaks(["1>&-", "2>&-", "0<&- 1>&- 2>&-"]))
def test_a_driver_may_have_closed_its_streams(closed: str) -> None:
    """A daemon starts, forked or by itself."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", STREAMLESS]
    assert subprocess.run(command, check=False, timeout=250).returncode == 0


def test_a_directory_that_is_deleted_is_none(forks: ForkServer, tmp_path: Path) -> None:
    """Python starts there nevertheless."""
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["sh", "-c", f'cd {gone}; rmdir {gone}; exec "$@"', "sh", forks.python]
    done = subprocess.run(
        [*command, "-m", DAEMON, "pyspark.worker"],
        env=environment(forks),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert len(done.stdout) == PORT_SIZE, done.stderr.decode()


@pytest.mark.soak
def test_a_fork_has_the_variables_and_the_import_path_of_a_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Names that no shell has, values in no encoding; PYTHONPATH in its order, made absolute."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "pyspark_shown.py").write_text(WORKER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environb, b"my.name", b"\xe9\xff")
    given = os.environ.get("PYTHONPATH", str(tmp_path / "d"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["a", given]))
    found = []
    forks = process.started()
    assert forks is not None
    for python in (forks.python, sys.executable):
        path = os.pathsep.join(["b", os.environ["PYTHONPATH"], str(tmp_path / "c")])
        variables = {"PYTHON_WORKER_FACTORY_SECRET": "s", "PYTHONPATH": path}
        with subprocess.Popen(
            [python, "-m", DAEMON, "pyspark_shown"],
            env=environment(forks, **variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as daemon:
            with socket.create_connection(("127.0.0.1", port_of(daemon))) as connection:
                connection.sendall(b"\0\0\0\1s")
                connection.shutdown(socket.SHUT_WR)
                with connection.makefile("rb") as file:
                    found.append(file.read()[PORT_SIZE + 4 + len("ok") :])
            assert (forks.python in words(daemon.pid)) is (python == forks.python)
            assert daemon.stdin is not None
            daemon.stdin.close()
    forks.end()
    assert b"\\xe9\\xff" in found[0]
    assert found[0] == found[1]


def test_signals_to_all_processes_leave_it_to_end_with_its_parent(forks: ForkServer) -> None:
    """A manager of services sends SIGTERM to each, and SIGHUP; Spark may still need a process."""
    child = psutil.Process(forks._process.pid)
    test_a_daemon_is_forked(forks)
    for number in (signal.SIGTERM, signal.SIGHUP):
        child.send_signal(number)
    test_a_daemon_is_forked(forks)
    test_a_worker_without_a_daemon_is_forked(forks)


def test_it_ends_at_once_where_others_hold_its_input(own_forks: ForkServer) -> None:
    """A process that the driver has forked has the other end of that pipe, too."""
    assert own_forks._process.stdin is not None
    copy = os.dup(own_forks._process.stdin.fileno())
    own_forks.end()
    # it did not wait for the end of its input
    assert own_forks._process.returncode == -signal.SIGKILL
    os.close(copy)


def test_its_output_is_with_that_of_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A warning of a library is for the log, not for the terminal."""
    monkeypatch.setenv("PYTHONVERBOSE", "1")
    with (tmp_path / "log").open("ab") as log:
        forks = process.started(None, log)
        assert forks is not None
        test_a_daemon_is_forked(forks)
        forks.end()
    assert "pyspark" in (tmp_path / "log").read_text()


def test_a_path_of_python_may_have_spaces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No first line of a script can have it."""
    python = tmp_path / "with space"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    forks = process.started()
    assert forks is not None
    with start(forks, "-m", DAEMON, "pyspark.worker") as daemon:
        assert port_of(daemon) > 0
        assert DAEMON in words(daemon.pid)
        assert "launcher" in words(daemon.pid)
        assert daemon.stdin is not None
        daemon.stdin.close()
    forks.end()


@pytest.mark.soak
def test_an_environment_may_be_larger_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with it starts by itself."""
    for number in range(12):
        monkeypatch.setenv(f"LARGE_{number}", "x" * 100_000)
    forks = process.started()
    assert forks is not None
    with start(forks, "-m", DAEMON, "pyspark.worker") as daemon:
        assert port_of(daemon) > 0
        assert forks.python not in words(daemon.pid)
        assert daemon.stdin is not None
        daemon.stdin.close()
    forks.end()


def test_its_files_do_not_grow_old(tmp_path: Path) -> None:
    """Systems delete temporary files of some days; a streaming query lasts longer."""
    program = "from ottla.spark.forking import server; import sys; server.PRELOADED = ()\n"
    program += "server.TOUCH_SECONDS = 0.05; server.main(int(sys.argv[1]))"
    script = tmp_path / "python"
    script.touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        number = str(listener.fileno())
        with subprocess.Popen(
            [sys.executable, "-c", program, number],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        ) as child:
            for _ in range(3):
                for one in (script, tmp_path):
                    os.utime(one, (0, 0))
                wait_for(lambda: min(script.stat().st_mtime, tmp_path.stat().st_mtime) > 0)
            assert child.stdin is not None
            child.stdin.close()
    assert not tmp_path.exists()


def test_modules_that_print_their_steps_are_quiet(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Their own `print` alone: what a query's functions print is seen."""
    given: list[Any] = []
    monkeypatch.setattr(server, "become", lambda _: None)
    monkeypatch.setattr(runpy, "run_module", lambda _, **named: given.append(named))
    with socket.socket() as connection:
        for module in (*server.NOISY, "json.tool"):
            assert find_spec(module) is not None
            server.run(server.Request(connection, [], [module], {}, ""))
    *noisy, other = (one["init_globals"] for one in given)
    for names in noisy:
        names["print"]("a step")
    assert capfd.readouterr().out == ""
    assert other is None
