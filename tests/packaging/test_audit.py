"""`scripts/audit`: vulnerable, not vulnerable, and no list to ask, each with its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.packaging.test_lock import ROOT

if TYPE_CHECKING:
    from pathlib import Path

NOT_LISTED = "ERROR:pip_audit._cli:click: Dependency not found on the index: click (8.5.1)"
NO_NETWORK = "ConnectionError: host 'x': [Errno -2] Name or service not known"
FOUND = "Found 1 known vulnerability in 1 package"


@pytest.mark.parametrize(
    ("text", "ends", "code", "lines", "says"),
    [
        ("No known vulnerabilities found", 0, 0, 1, "No known vulnerabilities"),
        (NOT_LISTED, 1, 3, 1, "nothing was audited"),
        (f"Traceback\n{NO_NETWORK}", 1, 3, 1, "Name or service not known"),
        (f"{FOUND}\nclick 8.5.1 X-1", 1, 1, 2, FOUND),
        ("another failure", 2, 1, 1, "another failure"),
    ],
)
def test_the_answer(tmp_path: Path, text: str, ends: int, code: int, lines: int, says: str) -> None:
    """What pip-audit says becomes a code; a list that cannot be had is one line."""
    stand_in = tmp_path / "audit.py"
    stand_in.write_text(f"import sys\nprint({text!r})\nsys.exit({ends})\n")
    done = subprocess.run(
        [ROOT / "scripts" / "audit"],
        env={**os.environ, "OTTLA_PIP_AUDIT": f"{sys.executable} {stand_in}"},
        capture_output=True,
        text=True,
        check=False,
    )
    written = done.stdout + done.stderr
    assert done.returncode == code, written
    assert len(written.splitlines()) == lines
    assert says in written
