"""The steps of docs/jdbc.md, as a new user takes them."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING

from ottla.testing.cluster import Cluster
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parents[3] / "docs" / "jdbc.md"


def rows(path: Path, text: str) -> Sequence[object]:
    """Return the rows of a query, none while there is no table."""
    with closing(sqlite3.connect(path)) as database:
        try:
            return database.execute(text).fetchall()
        except sqlite3.OperationalError:
            return []


def test_the_steps_of_the_page(tmp_path: Path) -> None:
    """Table to topic to table by the page's files and commands, with this node and a free port."""
    text = PAGE.read_text(encoding="utf-8")
    commands = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    files = re.findall(r"`(\w+\.properties)`:\n\n```properties\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in files] == [
        "worker.properties", "source.properties", "sink.properties",
    ]  # fmt: skip
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}

    def run(command: str) -> str:
        return subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment, check=True, stdout=PIPE, text=True
        ).stdout

    run(commands[0])
    with Cluster() as cluster:
        for name, content in files:
            own = content.replace("localhost:9092", cluster.bootstrap).replace(":8083", ":0")
            (tmp_path / name).write_text(own)
        words = re.search(r"`ottla (connect-standalone [^`]*)`", text)
        assert words is not None
        command = [sys.executable, "-m", "ottla", *words[1].split()]
        with Popen(command, cwd=tmp_path, stdout=PIPE, text=True) as process:
            try:
                end_s = time.monotonic() + 60
                while len(rows(tmp_path / "copy.db", 'SELECT * FROM "shop-orders"')) < 2:
                    assert time.monotonic() < end_s
                    time.sleep(0.1)
                assert run(commands[1]).strip() in text
            finally:
                process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0
