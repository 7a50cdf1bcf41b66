"""Starts and ends the server of a local session, from the process of the driver."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.spark.forking import launcher, server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

STREAMS: Final = 3
KILLED_SECONDS: Final = 10.0
"""Time limit for the end of a killed process."""
MAX_FIRST_LINE: Final = 127
"""Bytes of a script's first line that every Linux reads."""
EXECUTOR_VARIABLE: Final = "spark.executorEnv."
"""Prefix of settings that set an environment variable for tasks."""
SEEDED: Final = {"PYTHONHASHSEED": "0"}
"""Spark's default for tasks, unless the driver has another value."""
FOR_ALL: Final = ("PYTHON", "LD_", "LC_", "LANG", "HOME")
"""Prefixes of variables that change how Python itself starts, also outside of tasks."""
OPTIONS: Final = "-SE"
"""No site packages, no PYTHONPATH: the launcher needs none of them."""


def of_tasks(config: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Spark gives to tasks by its settings, and a server can have.

    A server has them from its start, when libraries read them. Processes that are no tasks are
    forked without them; so a variable is left out that changes what Python itself does.
    """
    found = {server.THREADS: config.get("spark.task.cpus", "1")}
    for setting, value in config.items():
        name = setting.removeprefix(EXECUTOR_VARIABLE)
        if name != setting and not name.startswith(FOR_ALL):
            found[name] = value
    return found


def started(
    temp_dir: Path | None = None,
    output: BinaryIO | None = None,
    variables: Mapping[str, str] | None = None,
) -> ForkServer | None:
    """Start a server; None where libraries do not survive a fork, or it can have no socket.

    Its directory is in `temp_dir`, which is deleted by whoever kills it, if a socket can be there.
    What it prints goes to `output`, else to the streams of this process. `variables` are those of
    tasks, as `of_tasks` returns them.
    """
    if sys.platform != "linux":
        return None
    for parent in [None] if temp_dir is None else [temp_dir.absolute(), None]:
        if (found := _started_in(parent, output, variables or of_tasks({}))) is not None:
            return found
    return None


def _started_in(
    parent: Path | None, output: BinaryIO | None, variables: Mapping[str, str]
) -> ForkServer | None:
    """Return a server; None where a path is too long, or a file system has no sockets."""
    try:
        directory = Path(tempfile.mkdtemp(prefix="ottla-fork-", dir=parent))
    except OSError:
        return None
    try:
        return ForkServer(directory, output, variables)
    except BaseException as error:
        shutil.rmtree(directory, ignore_errors=True)
        if isinstance(error, OSError):
            return None
        raise


class ForkServer:
    """A running server; its socket is in a directory that only this user may enter."""

    def __init__(
        self, directory: Path, output: BinaryIO | None, variables: Mapping[str, str]
    ) -> None:
        """Start it with an empty directory, which it deletes at its end; OSError if it cannot."""
        self._directory = directory
        self.address = str(directory / "socket")
        self.python = _python(directory / "python")
        with socket.socket(socket.AF_UNIX) as listener:
            if listener.fileno() < STREAMS:
                raise OSError("a standard stream is closed, whose number the server needs")
            listener.bind(self.address)
            listener.listen()  # from now on requests wait until the server has imported all
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", server.__name__, str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**SEEDED, **os.environ, **variables, "PYTHONUNBUFFERED": "YES"},
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C goes to the driver only
            )

    def end(self) -> None:
        """End the server; what it has forked ends with Spark."""
        assert self._process.stdin is not None
        kill(self._process)  # it has nothing to finish, and may still import
        self._process.stdin.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and wait for its end.

    The wait has a limit: one without holds a lock, which a signal's handler would wait for.
    """
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_SECONDS)


def _python(script: Path) -> str:
    """Return the path of what Spark runs as Python: the launcher, where files can be run.

    Python reads it without a shell, which leaves out variables whose names it cannot have; not
    where Python's path does not fit a `#!` line.
    """
    first = f"#!{sys.executable} {OPTIONS}\n"
    if len(first.split()) == 2 and len(os.fsencode(first)) <= MAX_FIRST_LINE:
        script.write_text(first + Path(launcher.__file__).read_text("utf-8"), "utf-8")
    else:
        command = shlex.join([sys.executable, OPTIONS, str(launcher.__file__)])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
    script.chmod(0o700)
    return str(script) if os.access(script, os.X_OK) else sys.executable
