"""The real files do what the Directory protocol says."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from ottla.server.system.files import RealDirectory, RealFile
from tests.server.system.descriptors import held


@pytest.fixture
def directory(tmp_path: Path) -> RealDirectory:
    return RealDirectory(str(tmp_path / "root"), create=True)


def test_append_gathers_buffers_and_tracks_the_end(directory: RealDirectory) -> None:
    """Appends of several buffers lie end to end, also after a truncation and a reopening."""
    file = directory.open("a", create=True)
    assert file.append([b"12", memoryview(b"345")]) == 5
    file.truncate(3)
    file.append([bytearray(b"x")])
    file.close()
    assert file.append([b"y"]) == 1
    assert file.read(0, 100) == b"123xy"
    assert file.size() == directory.size("a") == 5


def test_no_descriptor_is_held_before_the_first_use(
    directory: RealDirectory, tmp_path: Path
) -> None:
    """Opening ten files takes no descriptor; using one takes one."""
    files = [directory.open(f"f{number}", create=True) for number in range(10)]
    assert held(tmp_path) == []
    files[0].append([b"x"])
    assert held(tmp_path) == ["f0"]
    files[0].close()
    assert held(tmp_path) == []


def test_a_missing_file_is_an_error(directory: RealDirectory) -> None:
    """Without create a missing file cannot be opened."""
    with pytest.raises(FileNotFoundError):
        directory.open("missing")


def test_a_pinned_file_closes_with_its_last_unpin(directory: RealDirectory) -> None:
    """A worker that still syncs keeps the descriptor, whatever the loop closes."""
    file = directory.open("a", create=True)
    file.pin()
    descriptor = file._descriptor
    file.close()
    os.fstat(descriptor)
    file.sync()
    file.unpin()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_short_writes_are_finished(
    directory: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the system takes only a part of a gather, the rest follows."""
    file = directory.open("a", create=True)
    real = os.pwrite

    def short(descriptor: int, buffers: list[bytes], offset: int) -> int:
        return real(descriptor, b"".join(buffers)[:3], offset)

    monkeypatch.setattr(os, "pwritev", short)
    assert file.append([b"12", b"345", b"67"]) == 7
    assert file.read(0, 10) == b"1234567"


def test_a_disk_that_takes_no_more_bytes_is_named(
    directory: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a full disk says of which file, as the system's own errors do."""
    file = directory.open("a", create=True)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    for write in (
        lambda: file.append([b"12"]),
        lambda: file.write_at(0, b"12"),
        lambda: directory.write_at("a", 0, b"12"),
        lambda: directory.write_file_atomically("a", b"12"),
    ):
        with pytest.raises(OSError, match="takes no more bytes") as caught:
            write()
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "a")


def test_what_was_appended_is_cached(
    directory: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tail that this process wrote is not probed; what was there before it is."""
    directory.open("a", create=True).append([os.urandom(300_000)])
    file = directory.open("a")
    file.append([os.urandom(1000)])

    def miss(*_: object) -> int:
        raise OSError(errno.EAGAIN, "not in the page cache")

    monkeypatch.setattr(os, "preadv", miss)
    assert file.is_cached(300_000, 1000)
    assert file.is_cached(301_000, 5)
    assert not file.is_cached(0, 10)
    assert not file.is_cached(299_999, 10)


def test_atomic_write_sets_mode_and_leaves_no_temporary(directory: RealDirectory) -> None:
    """The file has the mode asked for and replaces a read-only one."""
    for content in (b"1", b"2"):
        directory.write_file_atomically("f", content, mode=0o400)
    assert directory.read_file("f") == b"2"
    assert directory.list() == ["f"]
    assert stat.S_IMODE(Path(directory.root, "f").stat().st_mode) == 0o400


def test_the_lock_excludes_this_process_and_others(directory: RealDirectory) -> None:
    """A second lock is refused, in this process and in a child; release frees it."""
    lock = directory.lock(".lock")
    with pytest.raises(BlockingIOError):
        directory.lock(".lock")
    if (child := os.fork()) == 0:
        try:
            directory.lock(".lock")
        except BlockingIOError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    lock.release()
    directory.lock(".lock").release()


def test_directories_are_made_listed_renamed_and_removed(directory: RealDirectory) -> None:
    """The tree calls work on nested paths."""
    directory.make("a/b")
    directory.open("a/b/f", create=True).append([b"x"])
    directory.link("a/b/f", "a/b/g")
    assert directory.list("a/b") == ["f", "g"]
    assert directory.is_directory("a")
    directory.rename("a/b", "a/c")
    directory.sync("a")
    assert directory.size("a/c/g") == 1
    directory.remove("a/c/g")
    directory.remove_tree("a")
    directory.remove_tree("a")
    assert not directory.exists("a")
    assert directory.free_space() > 0


def test_a_moved_file_opens_under_its_new_name(directory: RealDirectory) -> None:
    """After a rename a closed file is found again."""
    file = directory.open("a", create=True)
    file.append([b"x"])
    file.close()
    directory.rename("a", "b")
    file.moved("b")
    assert file.read(0, 1) == b"x"


def test_bytes_are_put_into_a_file_that_no_one_holds(
    directory: RealDirectory, tmp_path: Path
) -> None:
    """Over old ones and behind the end; the file is made when missing, no descriptor is kept."""
    directory.write_at("a", 2, b"cd")
    directory.write_at("a", 0, bytearray(b"abC"))
    assert directory.read_file("a") == b"abCd"
    with pytest.raises(FileNotFoundError):
        directory.write_at("missing/a", 0, b"x")
    assert held(tmp_path) == []


def test_a_file_of_zeros_takes_the_place_of_another(directory: RealDirectory) -> None:
    """Whatever was there is gone, the hole has the size asked for."""
    directory.write_at("a", 0, b"old bytes")
    for size in (4, 0):
        directory.make_file("a", size)
        assert directory.read_file("a") == bytes(size)


def test_the_removal_of_a_linked_directory_removes_the_link(tmp_path: Path) -> None:
    """What it names may be on another disk, and somebody else's."""
    directory = RealDirectory(str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"kept")
    (tmp_path / "data" / "a-0").symlink_to(tmp_path / "elsewhere")
    directory.remove_tree("a-0")
    assert directory.list() == []
    assert (tmp_path / "elsewhere" / "file").read_bytes() == b"kept"


def test_an_open_directory_goes_along_when_it_is_renamed(tmp_path: Path) -> None:
    """What is written through it never lands in a directory that has its old name."""
    directory = RealDirectory(str(tmp_path))
    directory.make("a-0")
    opened = directory.open_directory("a-0")
    directory.rename("a-0", "a-0.x-delete")
    directory.make("a-0")
    for data in (b"longer", b"new"):
        opened.write_file("file.tmp", data)
        opened.sync_file("file.tmp")
        opened.rename("file.tmp", "file")
    opened.sync()
    assert directory.list("a-0") == []
    assert directory.read_file("a-0.x-delete/file") == b"new"
    directory.remove_tree("a-0.x-delete")
    with pytest.raises(FileNotFoundError):
        opened.write_file("file", b"")
    opened.close()
    opened.close()
    with pytest.raises(FileNotFoundError):
        directory.open_directory("b-0")


def test_files_know_when_they_were_written(directory: RealDirectory) -> None:
    """In milliseconds since the epoch, as retention counts."""
    directory.open("a", create=True)
    os.utime(f"{directory.root}/a", ns=(0, 1_700_000_000_123_456_789))
    assert directory.modified_ms("a") == 1_700_000_000_123


def test_a_file_with_two_names_is_not_changed_in_place(tmp_path: Path) -> None:
    """Appends, writes, cuts and new files go to a copy; an open file and its workers follow it."""
    directory = RealDirectory(str(tmp_path))

    def shared(name: str) -> RealFile:
        directory.write_file_atomically(name, b"content", mode=0o600)
        directory.link(name, f"{name}.other")
        return directory.open(name)

    file = shared("appended")
    assert file.read(0, 7) == b"content"
    file.pin()
    file.append([b" more"])
    file.sync()
    file.unpin()
    assert (directory.read_file("appended"), file.size()) == (b"content more", 12)
    assert (tmp_path / "appended").stat().st_mode & 0o777 == 0o600
    shared("cut").truncate(3)
    shared("written").write_at(0, b"C")
    shared("entry")
    directory.write_at("entry", 7, b"!")
    shared("made")
    directory.make_file("made", 2)
    shared("replaced")
    opened = directory.open_directory("")
    opened.write_file("replaced", b"new")
    opened.close()
    assert {name: directory.read_file(name) for name in ("cut", "written", "entry", "made")} == {
        "cut": b"con",
        "written": b"Content",
        "entry": b"content!",
        "made": bytes(2),
    }
    assert directory.read_file("replaced") == b"new"
    others = [name for name in directory.list() if name.endswith(".other")]
    assert len(others) == 6
    assert {directory.read_file(name) for name in others} == {b"content"}
    assert not [name for name in directory.list() if name.endswith(".tmp")]


def test_a_failed_sync_of_the_name_of_a_copy(
    directory: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the other names stays as it is, also for what is written later."""
    directory.write_file_atomically("a", b"shared")
    directory.link("a", "b")
    file, sync = directory.open("a"), os.fsync

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "no sync of directories")
        sync(descriptor)

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no sync of directories"):
        file.append((b"1",))
    file.append((b"2",))
    assert directory.read_file("b") == b"shared"
    assert directory.read_file("a") == b"shared2"
