"""Real servers of PostgreSQL and MariaDB for tests, each in a directory of its own.

The programs are looked up on the path and where Debian has them, then installed by `apt-get`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect.jdbc.dialects import database
from ottla.connect.jdbc.settings import SINK
from ottla.connect.jdbc.url import parse_address
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

DIRECTORIES = ("/usr/lib/postgresql/*/bin", "/usr/sbin", "/usr/bin", "/usr/local/sbin")
PACKAGES = {"initdb": "postgresql", "mariadbd": "mariadb-server-core"}


def program(name: str) -> str:
    """Return the path of a program, installed when need be; skip without it, fail in CI."""
    for attempt in range(3):
        path = shutil.which(name)
        if path is not None:
            return path
        for pattern in DIRECTORIES:
            for directory in sorted(Path("/").glob(pattern[1:])):
                if (directory / name).exists():
                    return str(directory / name)
        if attempt == 0 and os.geteuid() == 0:
            _apt("install", "--yes", "--no-install-recommends", PACKAGES[name])
        elif attempt == 1 and os.geteuid() == 0:
            _apt("update")
            _apt("install", "--yes", "--no-install-recommends", PACKAGES[name])
    if os.environ.get("CI") == "true":
        raise AssertionError(f"{name} is missing, and apt-get does not install {PACKAGES[name]}")
    pytest.skip(f"{name} is missing")


def _apt(*arguments: str) -> None:
    if shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", *arguments], check=False, capture_output=True, env=environment)


class Server:
    """A database to test with; `settings` are those of a connector."""

    def __init__(self, kind: str, url: str) -> None:
        """Take the kind (postgresql, mariadb, sqlite) and the address."""
        self.kind = kind
        self.settings = {"connection.url": url, "connection.backoff.ms": "200"}

    def sql(self, text: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run statements, and return the rows of the last one."""
        values = SINK.parse(self.settings)
        connection = database(parse_address(values, self.settings), values)
        try:
            for statement in text.split(";\n"):
                cursor = connection.execute(statement, parameters)
            connection.commit()
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.drop()

    def tables(self, *names: str) -> None:
        """Drop tables."""
        for name in names:
            self.sql(f"DROP TABLE IF EXISTS {name}")

    def kill(self) -> None:
        """Kill the server."""

    def start(self) -> None:
        """Start the server again, on the same port."""

    def close(self) -> None:
        """End the server and remove its directory."""


class PostgreSqlServer(Server):
    """A server as `initdb` makes it; root cannot run it, so that the user postgres does."""

    def __init__(self) -> None:
        """Make the directory and start."""
        self._bin = Path(program("initdb")).resolve().parent
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-pg-"))
        self._port = free_ports(1)[0]
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(self._directory, "postgres")
        data = str(self._directory / "data")
        self._run("initdb", "-D", data, "-A", "trust", "-U", "ottla", "--no-sync")
        self.start()
        super().__init__(
            "postgresql", f"jdbc:postgresql://127.0.0.1:{self._port}/postgres?user=ottla"
        )

    def _run(self, name: str, *arguments: str) -> None:
        command = [*self._as, str(self._bin / name), *arguments]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
        )

    def start(self) -> None:
        """Start, and wait until connections work."""
        options = f"-p {self._port} -k {self._directory} -c fsync=off -c listen_addresses=127.0.0.1"
        data, log = str(self._directory / "data"), str(self._directory / "log")
        self._run("pg_ctl", "-D", data, "-o", options, "-l", log, "-w", "start")

    def kill(self) -> None:
        """End it without a checkpoint."""
        self._run("pg_ctl", "-D", str(self._directory / "data"), "-m", "immediate", "-w", "stop")

    def close(self) -> None:
        """End it."""
        self.kill()
        shutil.rmtree(self._directory)


class MariaDbServer(Server):
    """A server as `mariadb-install-db` makes it."""

    def __init__(self) -> None:
        """Make the directory and start."""
        self._program = program("mariadbd")
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-maria-"))
        self._port = free_ports(1)[0]
        self._user = (
            [f"--user={os.environ.get('USER', 'root')}"] if os.geteuid() else ["--user=root"]
        )
        command = [
            "mariadb-install-db", *self._user, f"--datadir={self._directory / 'data'}",
            "--auth-root-authentication-method=normal", "--skip-test-db",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        super().__init__("mariadb", f"jdbc:mariadb://127.0.0.1:{self._port}/?user=root")
        self.start()
        self.sql("CREATE DATABASE test")
        self.settings["connection.url"] = f"jdbc:mariadb://127.0.0.1:{self._port}/test?user=root"

    def start(self) -> None:
        """Start, and wait until connections work."""
        self._process = subprocess.Popen(
            [
                self._program, *self._user, f"--datadir={self._directory / 'data'}",
                f"--port={self._port}", "--bind-address=127.0.0.1",
                f"--socket={self._directory / 'socket'}", "--innodb-flush-log-at-trx-commit=2",
                "--innodb-doublewrite=0", "--sync-frm=0",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        end_s = time.monotonic() + 60
        while True:
            try:
                self.sql("SELECT 1")
            except Exception:
                if time.monotonic() > end_s:
                    raise
                time.sleep(0.1)
            else:
                return

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it."""
        self.kill()
        shutil.rmtree(self._directory)
