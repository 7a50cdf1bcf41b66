"""Prometheus and its rule checker for tests, installed or from Debian's package.

OTTLA_PROMTOOL names the checker, in whose directory Prometheus is; else both are looked up on the
path, then in a cache outside the repository, where the package `prometheus` is unpacked by
`apt-get` and `dpkg-deb`, not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


class PromtoolMissing(Exception):
    """The program is not available; the message lists the attempts."""


def promtool_or_skip() -> Path:
    """Return the program; skip the test without it, fail where CI=true."""
    try:
        return find_promtool()
    except PromtoolMissing as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


def find_promtool() -> Path:
    """Return the program, fetched when need be."""
    named = os.environ.get("OTTLA_PROMTOOL") or shutil.which("promtool")
    if named:
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "ottla"
    program = cache / "prometheus" / "usr" / "bin" / "promtool"
    if not program.exists():
        _unpack(cache)
    return program


def _unpack(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        directory = Path(name)
        try:
            if not _download(directory):
                subprocess.run(["apt-get", "update"], check=True, capture_output=True)
                _download(directory)
            package = next(directory.glob("prometheus_*.deb"))
            unpacked = directory / "unpacked"
            command = ["dpkg-deb", "--extract", str(package), str(unpacked)]
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError, StopIteration) as error:
            tried = "OTTLA_PROMTOOL, the path, `apt-get download prometheus`"
            raise PromtoolMissing(f"no promtool (tried {tried}): {error!r}") from error
        if not (cache / "prometheus").exists():
            unpacked.rename(cache / "prometheus")


def _download(directory: Path) -> bool:
    command = ["apt-get", "download", "prometheus"]
    return subprocess.run(command, cwd=directory, check=False, capture_output=True).returncode == 0
