"""Starts and ends the server of a local session, from the process of the driver."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from ottla.spark.forking import launcher, server

END_SECONDS: Final = 5.0
MAX_PATH: Final = 108
"""Linux: what the address of a Unix socket has room for, with a zero at its end."""


def started(temp_dir: Path | None = None) -> ForkServer | None:
    """Start a server; None where libraries do not survive a fork, or its path would be too long.

    Its directory is in `temp_dir`, which is deleted by whoever kills it, if the path fits.
    """
    for parent in [None] if temp_dir is None else [temp_dir, None]:
        directory = tempfile.mkdtemp(prefix="ottla-fork-", dir=parent)
        if sys.platform == "linux" and len(directory) + len("/socket") < MAX_PATH:
            return ForkServer(Path(directory))
        Path(directory).rmdir()
    return None


class ForkServer:
    """A running server; its socket is in a directory that only this user may enter."""

    def __init__(self, directory: Path) -> None:
        """Start it with an empty directory, which it deletes at its end."""
        self._directory = directory
        self.address = str(directory / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen()  # from now on requests wait until the server has imported all
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", server.__name__, str(listener.fileno())],
                stdin=subprocess.PIPE,
                env={**server.AT_START, **os.environ, "PYTHONUNBUFFERED": "YES"},
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C goes to the driver only
            )

    def python(self) -> str:
        """Return the path of what Spark runs as Python: the launcher, where files can be run."""
        script = self._directory / "python"
        command = shlex.join([sys.executable, "-S", "-E", str(launcher.__file__)])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o700)
        return str(script) if os.access(script, os.X_OK) else sys.executable

    def end(self) -> None:
        """End the server; what it has forked ends with Spark."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
