"""An environment of Python as `venv-pack` makes one, with links in place of the packages.

The packages of a whole one take 600 MB, and a minute to pack and to unpack.
"""

from __future__ import annotations

import sys
import tarfile
import venv
from pathlib import Path


def make_environment(directory: Path) -> Path:
    """Make the environment in a directory; return its archive next to it."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    (site,) = directory.glob("lib/python3*/site-packages")
    paths = [one for one in sys.path if one and Path(one).is_dir()]
    (site / "linked.pth").write_text("\n".join(paths))
    archive = directory.with_suffix(".tar.gz")
    with tarfile.open(archive, "w:gz") as made:
        made.add(directory, ".")
    return archive
