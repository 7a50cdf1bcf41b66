"""`ottla quickstart` as a user runs it, with its Spark job and the kill in the middle."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Give a directory whose path leaves room for the address of a Unix socket."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def test_a_killed_job_goes_on_without_a_duplicate(tmp_path: Path, temporary: Path) -> None:
    """The windows are those of the direct computation, each once, and there is a picture.

    No temporary file is left, not even of the processes that were killed.
    """
    command = [sys.executable, "-m", "ottla", "quickstart"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 of the job, its JVM and its workers" in done.stdout
    assert re.search(r"windows read back .* none missing,\s+none twice", done.stdout, re.DOTALL)
    assert (tmp_path / "ottla-quickstart.png").read_bytes().startswith(b"\x89PNG")
    assert list(temporary.iterdir()) == []
