"""What `ottla --version --verbose` prints: compiled modules, Python, libraries.

Kafka: none.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from ottla.records.compiled import COMPILED_MODULES, uncompiled_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARIES: Final = (
    "uvloop",
    "cramjam",
    "backports.zstd",
    "crc32c",
    "click",
    "rich",
    "psutil",
    "xxhash",
    "regex",
    "starlette",
    "uvicorn",
    "pyspark",
    "pyarrow",
    "pandas",
)


def version_lines() -> Iterator[str]:
    """Yield the lines after the version."""
    missing = uncompiled_modules()
    if missing:
        yield f"modules   not compiled: {', '.join(missing)}; produce and consume are slower"
    else:
        yield f"modules   compiled ({len(COMPILED_MODULES)})"
    yield (
        f"python    {platform.python_version()} ({platform.python_implementation()}, "
        f"{platform.system()} {platform.machine()})"
    )
    for name in _LIBRARIES:
        try:
            yield f"library   {name} {version(name)}"
        except PackageNotFoundError:
            yield f"library   {name} not installed"
