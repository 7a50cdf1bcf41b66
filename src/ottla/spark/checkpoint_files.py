"""The files of a checkpoint, in the file system that its location names.

Kafka: none; Spark: CheckpointFileManager. HDFS by its REST protocol, all others by pyarrow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow.fs as pafs

from ottla.spark.hadoop_settings import hadoop_user
from ottla.spark.webhdfs import WebHdfs

if TYPE_CHECKING:
    from collections.abc import Mapping

_URI: Final = re.compile("([a-z][a-z0-9+.-]+):(?://([^/]*))?(|/.*)", re.DOTALL | re.IGNORECASE)
_S3: Final = ("s3", "s3a", "s3n")
_WITHOUT_HOMES: Final = ("gs",)
"""The file systems in which a relative path is one from the root, not from the user's directory."""
_DEFAULT: Final = "fs.defaultfs"
_ANONYMOUS: Final = "AnonymousAWSCredentialsProvider"


class Location(NamedTuple):
    """A location by its parts; the scheme of a path alone is ""."""

    scheme: str
    authority: str
    path: str


class Files(Protocol):
    """What a checkpoint needs of a file system; OSError where it fails."""

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; none if there is no such directory."""

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None if there is none."""

    def write(self, path: str, content: bytes) -> None:
        """Write a file and the directories above it; one of that name is replaced."""


class ArrowFiles:
    """Files of a file system of pyarrow."""

    def __init__(self, files: pafs.FileSystem) -> None:
        self._files = files

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; none if there is no such directory."""
        selector = pafs.FileSelector(directory, allow_not_found=True)
        return [str(entry.base_name) for entry in self._files.get_file_info(selector)]

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None if there is none."""
        (found,) = self._files.get_file_info([path])
        if found.type != pafs.FileType.File:
            return None
        with self._files.open_input_stream(path) as stream:
            return bytes(stream.readall())

    def write(self, path: str, content: bytes) -> None:
        """Write a file and the directories above it, which object stores do not have."""
        if isinstance(self._files, pafs.LocalFileSystem):
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(path) as stream:
            stream.write(content)


def is_local(location: str, settings: Mapping[str, str]) -> bool:
    """Whether a location, as a user gives it, is a path or a URI of this machine's files."""
    return _split(qualified(location, settings)).scheme in ("", "file")


def open_files(location: str, settings: Mapping[str, str]) -> tuple[Files, str]:
    """Return the files of a location as `qualified` returns it, and its path; ValueError, OSError.

    `settings` are Hadoop's, by lower-cased name.
    """
    scheme, authority, path = _split(location)  # Hadoop's paths may have ?, # and %
    if scheme == "file":
        return ArrowFiles(pafs.LocalFileSystem()), f"/{path.lstrip('/')}"
    if not scheme:
        return ArrowFiles(pafs.LocalFileSystem()), location
    if not authority:
        raise ValueError(f"give {scheme}://HOST:PORT/…, or fs.defaultFS in HADOOP_CONF_DIR")
    if scheme == "hdfs":
        return WebHdfs(authority, settings), path or "/"
    if scheme in _S3:
        return ArrowFiles(_s3(authority, settings)), f"{authority}{path}"
    files, root = pafs.FileSystem.from_uri(location)
    return ArrowFiles(files), str(root)


def qualified(location: str, settings: Mapping[str, str]) -> str:
    """Return a location with what it leaves to Hadoop's default file system (fs.defaultFS).

    Spark takes a path without a scheme to be there, of whatever scheme it is, and the authority of
    a URI without one (`hdfs:///path`) to be its own.
    """
    scheme, authority, path = _split(location)
    default = _split(settings.get(_DEFAULT, ""))
    if default.scheme in ("", "file") or authority or scheme not in ("", default.scheme):
        return location
    if not scheme and not location.startswith("/"):
        home = "/" if default.scheme in _WITHOUT_HOMES else f"/user/{hadoop_user()}/"
        path = f"{home}{location}"
    return f"{default.scheme}://{default.authority}{path}"


def _split(location: str) -> Location:
    found = _URI.fullmatch(location)
    if found is None:
        return Location("", "", location)
    return Location(found[1].lower(), found[2] or "", found[3])


def _s3(bucket: str, settings: Mapping[str, str]) -> pafs.S3FileSystem:
    """Return the store of a bucket with the settings of S3A.

    Without keys pyarrow finds them as S3A does: AWS_ACCESS_KEY_ID, the role of the instance.
    """

    def given(name: str) -> str | None:
        of_bucket = settings.get(f"fs.s3a.bucket.{bucket}.{name}".lower())
        return of_bucket or settings.get(f"fs.s3a.{name}") or None

    options: dict[str, Any] = {
        "access_key": given("access.key"),
        "secret_key": given("secret.key"),
        "session_token": given("session.token"),
        "region": given("endpoint.region"),
    }
    if _ANONYMOUS in (given("aws.credentials.provider") or ""):
        options["anonymous"] = True
    if endpoint := given("endpoint"):
        scheme, _, host = endpoint.rpartition("://")
        is_plain = given("connection.ssl.enabled") == "false"
        options["endpoint_override"] = host.rstrip("/")
        options["scheme"] = scheme or ("http" if is_plain else "https")
        options["force_virtual_addressing"] = given("path.style.access") == "false"
    elif options["region"] is None:
        options["region"] = pafs.resolve_s3_region(bucket)
    return pafs.S3FileSystem(**{name: one for name, one in options.items() if one is not None})
