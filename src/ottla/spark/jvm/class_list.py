"""The classes that a session of Spark has loaded, as Java lists them for an archive.

Java writes a line for each class, and lines with `@` for lambdas and call sites. Of the classes
only the names count: Java numbers those of each session from zero.

Kafka: none; Java's `-XX:DumpLoadedClassList`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MIN_CLASSES: Final = 3000
"""A session that has begun a job has loaded thrice as many."""
GROWTH: Final = 0.1
"""The share of new classes that makes a new archive worth its work: a first query of another kind,
such as a stream, doubles what a session loads."""
_OTHER_LOADER: Final = " source:"
"""Such a class is not of Spark's class path, and its line refers to numbers."""
_GENERATED: Final = "@lambda-form-invoker"
"""From these Java generates classes without a file: Java 17 crashes when it loads one while a
flight recording or an agent watches the classes."""


def read_classes(path: Path) -> list[str]:
    """Return the lines of a list, none without one; a line that Java was writing is cut off."""
    try:
        lines = path.read_text("utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):
        return []
    return [_name(one) for one in lines if one.endswith("\n") and _is_kept(one)]


def _is_kept(line: str) -> bool:
    return not line.startswith(("#", _GENERATED)) and _OTHER_LOADER not in line


def _name(line: str) -> str:
    return line.rstrip("\n") if line.startswith("@") else line.partition(" id:")[0].rstrip("\n")


def is_worth_an_archive(listed: Iterable[str], archived: Iterable[str]) -> bool:
    """Whether a session has loaded enough, and enough that the archive does not have."""
    names, known = set(listed), set(archived)
    return len(names) >= MIN_CLASSES and len(names - known) > GROWTH * len(known)


def write_classes(path: Path, *lists: Iterable[str]) -> None:
    """Write what any of the lists has, in their order."""
    union = dict.fromkeys(line for one in lists for line in one)
    path.write_text("".join(f"{line}\n" for line in union), "utf-8")
