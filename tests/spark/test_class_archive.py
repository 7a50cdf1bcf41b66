"""The class archive of Spark's JVM: whole or absent, made once, and never asked for in vain."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ottla.spark.jvm.class_archive import (
    GROWING_SECONDS,
    MIN_CLASSES,
    RETRY_SECONDS,
    UNUSED_SECONDS,
    ClassArchive,
)
from ottla.spark.jvm.launching import Java, cache_dir

DUMPS = """\
classes = open(flags["-XX:SharedClassListFile"]).read()
    open(flags["-XX:SharedArchiveFile"], "w").write(classes)"""
GENERATED = "@lambda-form-invoker [SPECIES_RESOLVE] java.lang.invoke.BoundMethodHandle$Species_LI\n"
"""Java 17 crashes with such a class in the archive when a flight recording runs."""
FAKE_JAVA = """#!{python}
import sys
import tempfile
flags = dict(one.partition("=")[::2] for one in sys.argv[1:])
if "-Xshare:dump" in flags:
    {dump}
sys.exit({status} if "-Xshare:on" in flags else 0)
"""


def archive_of(
    directory: Path, *, dump: str = DUMPS, status: int = 0, version: int = 25
) -> ClassArchive:
    """Return the archive of a Java that dumps so, and starts with this status."""
    java = directory / "java"
    java.write_text(FAKE_JAVA.format(python=sys.executable, dump=dump, status=status))
    java.chmod(0o755)
    return ClassArchive(Java(java, version), directory, directory)


@pytest.fixture
def class_list(tmp_path: Path) -> Path:
    """Give a list whose last line Java was writing."""
    path = tmp_path / "classes"
    path.write_text(f"# a comment\n{lines(MIN_CLASSES)}{GENERATED}@lambda-proxy C0 run\njava/la")
    return path


def lines(count: int) -> str:
    """Return the lines of so many classes, as Java numbers them."""
    return "".join(f"C{number} id: {number}\n" for number in range(count))


def test_an_archive_is_used_once_it_works(tmp_path: Path, class_list: Path) -> None:
    """The first session lists its classes, later ones use what was made of them."""
    archive = archive_of(tmp_path)
    (listing,) = archive.options()
    assert listing.startswith("-XX:DumpLoadedClassList=")
    assert archive.make(class_list)
    classes = archive.path.read_text().splitlines()
    assert classes[0] == "C0"
    assert len(classes) == MIN_CLASSES + 1
    assert classes[-1] == "@lambda-proxy C0 run"
    assert archive.options()[0] == f"-XX:SharedArchiveFile={archive.path}"
    assert not archive.make(class_list)  # there is one


def test_an_archive_grows(tmp_path: Path, class_list: Path) -> None:
    """It is made again for a session with many other classes; both sessions' are in it."""
    archive = archive_of(tmp_path)
    assert archive.make(class_list)
    assert archive.options()[-1].startswith("-XX:DumpLoadedClassList=")
    class_list.write_text(lines(MIN_CLASSES + MIN_CLASSES // 20))
    assert not archive.make(class_list)
    class_list.write_text(lines(MIN_CLASSES + MIN_CLASSES // 5) + "D source: other.jar id: 9\n")
    assert archive.make(class_list)
    classes = archive.path.read_text().splitlines()
    assert len(classes) == MIN_CLASSES + MIN_CLASSES // 5 + 1
    assert "@lambda-proxy C0 run" in classes
    assert not archive.make(class_list)
    week_ago = time.time() - GROWING_SECONDS - 60
    os.utime(archive.path.with_suffix(".classes"), (week_ago, week_ago))
    assert "-XX:DumpLoadedClassList" not in " ".join(archive.options())


def test_lists_of_killed_sessions_are_deleted(tmp_path: Path) -> None:
    """Those of other processes that run are kept."""
    archive = archive_of(tmp_path)
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    left, used = (archive.path.with_suffix(f".{one}.classes") for one in (killed.pid, os.getppid()))
    left.touch()
    used.touch()
    archive.options()
    assert not left.exists()
    assert used.exists()


def test_logs_are_named_as_java_knows_them(tmp_path: Path, class_list: Path) -> None:
    """Java 17 does not start with the name of a log that came later."""
    archive = archive_of(tmp_path, version=17)
    assert archive.make(class_list)
    assert archive.options()[2:3] == ["-Xlog:cds=off"]


@pytest.mark.parametrize(("dump", "status"), [("pass", 0), ("sys.exit(1)", 0), (DUMPS, 1)])
def test_what_java_refuses_is_not_tried_again(
    tmp_path: Path, class_list: Path, dump: str, status: int
) -> None:
    """A dump that fails or that Java does not start with leaves no archive, and no listing."""
    archive = archive_of(tmp_path, dump=dump, status=status)
    assert not archive.make(class_list)
    assert not archive.path.exists()
    assert not archive.path.with_suffix(".new").exists()
    assert archive.options() == []


def test_a_failed_attempt_is_repeated_a_day_later(
    tmp_path: Path, class_list: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory or disk may have been short; until then the log says why there is no archive."""
    fails = "java.lang.OutOfMemoryError: Java heap space"
    short = tmp_path / "short"
    short.touch()
    dump = f"import os; os.path.exists({str(short)!r}) and sys.exit({fails!r})\n    {DUMPS}"
    archive = archive_of(tmp_path, dump=dump)
    assert not archive.make(class_list)
    failed = archive.path.with_suffix(".failed")
    hour_before = time.time() - RETRY_SECONDS + 3500
    os.utime(failed, (hour_before, hour_before))
    with caplog.at_level(logging.INFO, "ottla.spark"):
        assert archive.options() == []
    assert f"({fails}); it is tried again in 1 hours" in caplog.text
    day_before = time.time() - RETRY_SECONDS - 60
    os.utime(failed, (day_before, day_before))
    assert archive.options()[0].startswith("-XX:DumpLoadedClassList=")
    short.unlink()
    assert archive.make(class_list)
    assert not failed.exists()


def test_one_process_makes_it(tmp_path: Path, class_list: Path) -> None:
    """Another one leaves it at that, as it does with the list of a session that did nothing."""
    archive = archive_of(tmp_path)
    with archive.path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not archive.make(class_list)
    class_list.write_text("java/lang/Object id: 1\n")
    assert not archive.make(class_list)
    assert archive.options()[0].startswith("-XX:DumpLoadedClassList=")  # the next session's


def test_unused_archives_are_deleted(tmp_path: Path, class_list: Path) -> None:
    """Those of a Java or a Spark that is no longer used."""
    old, used = (tmp_path / f"spark-java25-{name}.jsa" for name in ("old", "used"))
    for one in (old, used):
        one.touch()
    long_ago = old.stat().st_mtime - UNUSED_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    archive_of(tmp_path).make(class_list)
    assert not old.exists()
    assert used.exists()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return where the cache is: of a user's own, and in a shared temporary directory."""
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    return tmp_path / "own" / "ottla", shared / f"ottla-{os.getuid()}"


def test_the_cache_is_made_for_its_user_alone(places: tuple[Path, Path]) -> None:
    """Whatever the umask is: Java runs what is in it."""
    own, _ = places
    before = os.umask(0)
    try:
        assert cache_dir() == own
    finally:
        os.umask(before)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


@pytest.mark.parametrize("made", ["by others", "for all", "for a group", "as a link", "as a file"])
def test_a_cache_that_others_can_write_is_not_used(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    """Neither the user's own nor that in the temporary directory; there is none then."""
    for place in places:
        place.parent.mkdir(exist_ok=True)
        if made == "as a file":
            place.touch()
        elif made == "as a link":
            other = place.with_name("other")
            other.mkdir()
            other.chmod(0o777)
            place.symlink_to(other)
        else:
            place.mkdir()
            place.chmod({"for all": 0o777, "for a group": 0o770}.get(made, 0o700))
    if made == "by others":
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert cache_dir() is None


def test_a_user_without_a_home_has_a_cache(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containers have with a number for a user; the temporary directory is what is left."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_dir() == places[1]
