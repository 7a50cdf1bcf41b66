"""Compiles the hot modules if Cython and a C compiler are present; otherwise installs without them.

The other package metadata is in pyproject.toml.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

COMPILED = (
    "metrics/sampled_stat",
    "records/scan",
    "records/newest_values",
    "records/column_scan",
    "records/lz4_frames",
    "records/validator",
    "protocol/walker",
    "protocol/flat",
    "protocol/request_header",
    "protocol/produce_values",
    "protocol/fetch_values",
    "protocol/follower_fetch",
    "storage/batches",
    "storage/cleaner/key_scan",
    "storage/cleaner/offset_map",
    "clients/producer/batches",
    "clients/producer/accumulator",
    "clients/producer/partitioner",
    "clients/consumer/record_decoder",
)
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # .pxd files declare the types, not annotations
    # These modules check bounds themselves, once per field instead of once per byte.
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
}

PROCESSOR_COUNT = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def flags_of(module: str) -> list[str]:
    """Return the C compiler's options: loops over many records unrolled, all else small.

    A request finds the processor's caches cold, so that code costs by its size.
    """
    if sys.platform == "win32":
        return ["/O2"]
    has_loops = module.startswith("clients/") or module.endswith("scan")
    flags = ["-O3" if has_loops else "-O2", "-fwrapv", "-g0"]
    return [*flags, "-fno-plt"] if sys.platform == "linux" else flags


def extensions() -> list[Any]:
    """Return the extension modules; none if disabled or without Cython."""
    if os.environ.get("OTTLA_PURE_PYTHON"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    uncompiled = [
        Extension(
            f"ottla.{name.replace('/', '.')}",
            [f"src/ottla/{name}.py"],
            extra_compile_args=flags_of(name),
        )
        for name in COMPILED
    ]
    try:
        translate: Any = cythonize
        modules: list[Any] = []
        for is_clients in (False, True):
            # Users see the clients' objects: a field of None must raise instead of crashing.
            modules += translate(
                [one for one in uncompiled if one.name.startswith("ottla.clients.") == is_clients],
                include_path=["src"],
                build_dir="build/cython",
                nthreads=PROCESSOR_COUNT,
                compiler_directives={**DIRECTIVES, "nonecheck": is_clients},
            )
    except Exception as error:  # noqa: BLE001 - after any Cython error the package is installed uncompiled
        print(f"ottla: the hot modules are not compiled: {error}", file=sys.stderr)  # noqa: T201
        return []
    for module in modules:
        module.optional = True  # Cython does not pass it on
    return modules


class BuildExt(build_ext):
    """Also compiles as many modules at a time as there are processors; --parallel overrides it."""

    def finalize_options(self) -> None:
        """Set what the command line leaves open."""
        if self.parallel is None:
            self.parallel = PROCESSOR_COUNT
        super().finalize_options()


class BuildPy(build_py):
    """Also copies the line that Python runs at its start: see pyspark_ottla.driver_python."""

    def run(self) -> None:
        """Build the packages; an editable install does without the line."""
        super().run()
        if not self.editable_mode:
            self.copy_file("src/pyspark_ottla/pyspark_ottla.pth", self.build_lib)


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExt, "build_py": BuildPy})
