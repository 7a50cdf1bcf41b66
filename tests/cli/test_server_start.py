"""Texts of `ottla server-start` for what a user can get wrong; wrong settings: tests/config."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from click.testing import CliRunner

from ottla.cli.commands.server_start import _file_advice, server_start

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_cannot_be_opened() -> None:
    """The path, the reason and what to do."""
    denied = OSError(errno.EACCES, os.strerror(errno.EACCES), "/data/.lock")
    assert _file_advice(denied) == (
        "cannot open /data/.lock: Permission denied; give this user the right to read and write "
        "it, or choose other log.dirs"
    )
    assert _file_advice(OSError("the disk is gone")) == "the disk is gone"


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    """One line, no traceback, with and without --format."""
    path = tmp_path / "data"
    path.write_text("")
    for flags in ([], ["--format"]):
        arguments = ["--port", "0", "--override", f"log.dirs={path}", *flags]
        told = CliRunner().invoke(server_start, arguments)
        assert told.exit_code == 1
        assert told.output.splitlines()[-1].startswith(("Error: cannot ", "Error: log directory"))
        assert "Traceback" not in told.output


def test_a_check_formats_nothing(tmp_path: Path) -> None:
    """--check reads only."""
    flags = ["--port", "0", "--override", f"log.dirs={tmp_path / 'data'}", "--format", "--check"]
    assert CliRunner().invoke(server_start, flags).output == "The configuration is valid.\n"
    assert not (tmp_path / "data").exists()
