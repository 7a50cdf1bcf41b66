"""Descriptors that this process has open, read from the kernel."""

from __future__ import annotations

from pathlib import Path


def held(folder: Path) -> list[str]:
    """Return the names of the files below a folder that this process has open, removed ones too.

    Descriptors elsewhere are not counted: garbage of earlier tests closes its own at any time.
    """
    found = []
    for one in Path("/proc/self/fd").iterdir():
        try:
            target = str(one.readlink())
        except OSError:  # it listed the folder
            continue
        if target.startswith(str(folder)):
            found.append(Path(target).name)
    return sorted(found)
