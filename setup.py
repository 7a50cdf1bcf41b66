"""Compiles the hot modules when Cython and a C compiler are there; installs without it else.

The rest of the package's description stands in pyproject.toml.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from setuptools import Extension, setup

COMPILED = (
    "records/scan",
    "records/column_scan",
    "protocol/walker",
    "clients/producer/batches",
    "clients/producer/accumulator",
    "clients/producer/partitioner",
    "clients/consumer/record_decoder",
)
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # a .pxd file gives the types; the hints are for people
    # These modules check bounds themselves, once a field instead of once a byte.
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
}


def extensions() -> list[Any]:
    """Return the module to compile; none when asked for none or when Cython is missing."""
    if os.environ.get("OTTLA_PURE_PYTHON"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    flags = ["/O2"] if sys.platform == "win32" else ["-O3", "-fwrapv", "-g0"]
    wanted = [
        Extension(
            f"ottla.{name.replace('/', '.')}",
            [f"src/ottla/{name}.py"],
            extra_compile_args=flags,
        )
        for name in COMPILED
    ]
    try:
        translate: Any = cythonize
        modules: list[Any] = []
        for is_clients in (False, True):
            # The clients' objects reach users: a field of None must raise and not crash.
            modules += translate(
                [one for one in wanted if one.name.startswith("ottla.clients.") == is_clients],
                include_path=["src"],
                build_dir="build/cython",
                compiler_directives={**DIRECTIVES, "nonecheck": is_clients},
            )
    except Exception as error:  # noqa: BLE001 - whatever Cython says, the package installs pure
        print(f"ottla: the hot modules are not compiled: {error}", file=sys.stderr)  # noqa: T201
        return []
    for module in modules:
        module.optional = True  # Cython does not hand it on
    return modules


setup(ext_modules=extensions())
