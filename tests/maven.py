"""Jars that tests fetch with Maven into the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def fetched(name: str, pom: Path) -> Path:
    """Return the directory of the jars that a pom.xml names, fetched on first use.

    `name` is that of its directory in ~/.cache/ottla, and has the version.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    libraries = base / "ottla" / name / "libs"
    if not libraries.is_dir():
        libraries.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=libraries.parent))
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={made}"], check=True, timeout=600)
        try:
            made.rename(libraries)
        except OSError:  # another process was faster
            shutil.rmtree(made)
    return libraries
