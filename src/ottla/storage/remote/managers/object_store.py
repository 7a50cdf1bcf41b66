"""Object stores as remote storage: S3 and what speaks it, Google Cloud Storage, Azure.

Objects have the names of the directory's files (`directory.py`), below the prefix of the URL. The
log is copied in parts, and read in ranges with a read-ahead. The client repeats requests that fail
by themselves later (errors 5xx, broken connections, timeouts), with back-off and jitter. S3 checks
a SHA-256 of each part. Credentials are the usual ones of the place (variables, web identity,
container, instance) or settings; no text of an error has one.

Only obstore's blocking functions are called: after its asyncio ones a process can die at its exit.

Kafka: none; plug-ins of others, each with its own layout.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from ottla.errors import ConfigError
from ottla.storage.layout import LOG_SUFFIX
from ottla.storage.remote.managers.directory import (
    INDEX_SUFFIXES,
    MARKER,
    check_owner,
    contents,
    file_path,
)
from ottla.storage.remote.storage_manager import (
    IndexKind,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.storage_manager import SegmentFiles
    from ottla.types import Buffer

STORE_PREFIX: Final = "store."
"""Settings of the client itself, by its names: store.endpoint, store.region and so on."""
_NUMBERS: Final = {
    "part.bytes": 8 << 20,
    "parts.in.flight": 2,
    "read.ahead.bytes": 1 << 20,
    "request.timeout.ms": 30_000,
    "retries": 5,
}
"""Ten copiers with two parts of 8 MiB each take 240 MiB; 10,000 parts, S3's limit, are 80 GiB."""
_MIN_PART_BYTES: Final = 5 << 20
"""S3 refuses smaller parts."""
_RETRY_TIMEOUT: Final = timedelta(minutes=3)
"""S3's clients give up after that: credentials for an hour may end in between."""
_SCHEMES: Final = (
    "s3://",
    "s3a://",
    "gs://",
    "az://",
    "azure://",
    "abfs://",
    "abfss://",
    "memory:",
)
_FATAL: Final = ("PermissionDeniedError", "UnauthenticatedError", "UnknownConfigurationKeyError")


class ObjectStorage:
    """Segments as objects below `url`, which all brokers of the cluster reach."""

    def __init__(self) -> None:
        self._obstore: Any = None
        self._store: Any = None
        self._secrets: tuple[str, ...] = ()
        self._numbers = dict(_NUMBERS)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Connect, and claim the place for the cluster.

        ConfigError for settings and another cluster's place; RemoteStorageError without an answer.
        """
        url = settings.get("url", "")
        if not url.startswith(_SCHEMES):
            raise ConfigError(f"url must begin with one of {', '.join(_SCHEMES)}")
        self._read_numbers(settings)
        options = {
            name.removeprefix(STORE_PREFIX): value
            for name, value in settings.items()
            if name.startswith(STORE_PREFIX)
        }
        self._secrets = tuple(value for value in options.values() if len(value) > 3)
        if url.startswith("s3"):
            options.setdefault("checksum_algorithm", "SHA256")
        client: dict[str, Any] = {
            "timeout": timedelta(milliseconds=self._numbers["request.timeout.ms"])
        }
        if options.get("endpoint", "").startswith("http://"):
            client["allow_http"] = True
        try:
            self._obstore = import_module("obstore")
        except ImportError as error:
            raise ConfigError("object stores need the extra: pip install '.[tiers]'") from error
        try:
            self._store = self._made_store(url, options, client)
        except self._errors as error:
            raise ConfigError(f"the object store cannot be set up: {self._text(error)}") from None
        if cluster_id := settings.get("cluster.id"):
            self._claim(cluster_id)

    def _read_numbers(self, settings: Mapping[str, str]) -> None:
        for name in _NUMBERS.keys() & settings.keys():
            text = settings[name]
            lowest = _MIN_PART_BYTES if name == "part.bytes" else 0 if name == "retries" else 1
            if not text.isdecimal() or int(text) < lowest:
                raise ConfigError(f"{name} must be a number of at least {lowest}, not {text}")
            self._numbers[name] = int(text)

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        """The errors of the client."""
        return self._obstore.exceptions.BaseError, OSError, ValueError

    def _made_store(self, url: str, options: dict[str, str], client: dict[str, Any]) -> Any:
        from_url = import_module("obstore.store").from_url
        if url.startswith("memory:"):
            return from_url(url)
        return from_url(
            url,
            config=options,
            client_options=client,
            retry_config={"max_retries": self._numbers["retries"], "retry_timeout": _RETRY_TIMEOUT},
        )

    def _claim(self, cluster_id: str) -> None:
        """Write the marker unless one is there, which the store decides."""
        try:
            with suppress(self._obstore.exceptions.AlreadyExistsError):
                self._obstore.put(self._store, MARKER, f"{cluster_id}\n".encode(), mode="create")
            owner = bytes(self._obstore.get(self._store, MARKER).bytes())
        except self._errors as error:
            text = f"the object store does not answer: {self._text(error)}"
            raise RetriableRemoteStorageError(text) from None
        check_owner(owner, cluster_id)

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> None:
        """Copy all files; what an error leaves is deleted with the segment."""
        for suffix, blocks in contents(files, self._numbers["part.bytes"]):
            path, is_log = file_path(segment, suffix), suffix == LOG_SUFFIX
            self.put_object(path, blocks if is_log else (b"".join(blocks),))
            with self._calling(path):
                size = self._obstore.head(self._store, path)["size"] if is_log else 0
            if is_log and size != files.log.size:
                raise RetriableRemoteStorageError(f"{path} has {size} bytes of {files.log.size}")

    def put_object(self, path: str, blocks: Iterable[Buffer]) -> None:
        """Store an object, in parts when it is large."""
        with self._calling(path):
            self._obstore.put(
                self._store,
                path,
                iter(blocks),
                chunk_size=self._numbers["part.bytes"],
                max_concurrency=self._numbers["parts.in.flight"],
            )

    def object_blocks(self, path: str) -> Iterator[bytes]:
        """Yield an object's content; RemoteResourceNotFoundError when it is missing."""
        with self._calling(path):
            for block in self._obstore.get(self._store, path):
                yield bytes(block)

    def object_sizes(self, prefix: str) -> dict[str, int]:
        """Return the sizes of the objects below a prefix, by path."""
        with self._calling(prefix):
            return {
                found["path"]: found["size"]
                for page in self._obstore.list(self._store, prefix)
                for found in page
            }

    def read_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """Return a range of the log; an object of another length than it had is not read."""
        stop = segment.size_bytes if end is None else min(end + 1, segment.size_bytes)
        stream = _RangeStream(self, segment, start, stop)
        stream.fill(1)
        return cast("BinaryIO", stream)

    def read_range(self, segment: RemoteSegment, start: int, size: int, end: int) -> bytes:
        """Return size bytes of the log or the read-ahead, whichever is more, up to end."""
        path = file_path(segment, LOG_SUFFIX)
        stop = min(start + max(size, self._numbers["read.ahead.bytes"]), end)
        with self._calling(path):
            found = self._obstore.get(self._store, path, options={"range": (start, stop)})
            object_bytes, data = found.meta["size"], bytes(found.bytes())
        if object_bytes != segment.size_bytes or len(data) != stop - start:
            raise RemoteStorageError(
                f"{path} has {object_bytes} bytes, and had {segment.size_bytes}"
            )
        return data

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """Return one index, read whole."""
        path = file_path(segment, INDEX_SUFFIXES[kind])
        with self._calling(path):
            return io.BytesIO(bytes(self._obstore.get(self._store, path).bytes()))

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete all objects; those that are gone are no error."""
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES.values()):
            path = file_path(segment, suffix)
            with suppress(RemoteResourceNotFoundError), self._calling(path):
                self._obstore.delete(self._store, path)

    def close(self) -> None:
        """Drop the client, whose connections end with it."""
        self._store = None

    @contextmanager
    def _calling(self, path: str) -> Iterator[None]:
        """Raise errors of the client as those of the interface; causes may tell a secret."""
        try:
            yield
        except FileNotFoundError:
            raise RemoteResourceNotFoundError(f"the object store has no {path}") from None
        except self._errors as error:
            is_fatal = type(error).__name__ in _FATAL
            kind = RemoteStorageError if is_fatal else RetriableRemoteStorageError
            raise kind(f"{path}: {self._text(error)}") from None

    def _text(self, error: Exception) -> str:
        """Return the first line of an error, without signatures of URLs and without settings."""
        text = re.sub(r"\?\S*", "", str(error).partition("\n")[0])
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        return f"{type(error).__name__} {text}"


class _RangeStream(io.RawIOBase):
    """A range of an object, read in pieces as it is consumed."""

    def __init__(
        self, storage: ObjectStorage, segment: RemoteSegment, start: int, end: int
    ) -> None:
        super().__init__()
        self._storage = storage
        self._segment = segment
        self._next = start
        self._end = end
        self._buffer = memoryview(b"")

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def fill(self, size: int) -> None:
        """Fetch the next bytes when none is left."""
        if not self._buffer and self._next < self._end:
            data = self._storage.read_range(self._segment, self._next, size, self._end)
            self._next += len(data)
            self._buffer = memoryview(data)

    def read(self, size: int = -1) -> bytes:
        """Return size bytes, fewer only at the end."""
        pieces: list[memoryview] = []
        missing = self._end if size < 0 else size
        while missing:
            self.fill(missing)
            if not self._buffer:
                break
            piece, self._buffer = self._buffer[:missing], self._buffer[missing:]
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as there are bytes; return their number."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
