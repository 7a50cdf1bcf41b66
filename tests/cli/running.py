"""Runs the command line in the process of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.main import main

if TYPE_CHECKING:
    import pytest


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command; return its status and what it printed on both streams."""
    status: object = 0
    try:
        main(arguments)
    except SystemExit as ended:
        status = ended.code or 0
    assert isinstance(status, int)
    printed = capsys.readouterr()
    return status, printed.out, printed.err
