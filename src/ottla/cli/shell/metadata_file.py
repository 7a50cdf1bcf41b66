"""Reads the metadata image from a snapshot or from a segment of the metadata log.

Kafka: org.apache.kafka.metadata.util.SnapshotFileReader, org.apache.kafka.shell.MetadataShell.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.cli.dump.batches import read_batches
from ottla.cli.shell.image_tree import Provenance
from ottla.cli.shell.nodes import ShellError
from ottla.errors import OttlaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import decode_record
from ottla.metadata.loader import MetadataLoader
from ottla.server.system.files import RealDirectory
from ottla.storage.layout import LOCK_FILE
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ottla.metadata.image.image import MetadataImage
    from ottla.records.batch import RecordBatch

_EMPTY = Provenance(OffsetAndEpoch(-1, -1), -1)


@contextmanager
def log_dir_locked(path: Path) -> Iterator[None]:
    """Hold the lock of the log directory that contains a file, when it has one.

    ShellError while a node uses the directory.
    """
    log_dir = path.absolute().parent.parent
    if not (log_dir / LOCK_FILE).exists():
        yield
        return
    try:
        lock = RealDirectory(str(log_dir)).lock(LOCK_FILE)
    except BlockingIOError as error:
        raise ShellError(
            f"Unable to lock {log_dir}. Please ensure that no broker or controller process is "
            "using this directory before proceeding."
        ) from error
    try:
        yield
    finally:
        lock.release()


def read_metadata(path: Path, warn: Callable[[str], object]) -> tuple[MetadataImage, Provenance]:
    """Read a file into an image; warn(text) reports records that cannot be applied.

    Raises OSError, CorruptMessage; ShellError for a file without a batch.
    """
    loader = MetadataLoader()
    provenance = _EMPTY
    is_empty = True
    with path.open("rb") as file:
        end = file.seek(0, 2)
        for batch in read_batches(file, 0, end, str(path)):
            is_empty = False
            if batch.is_control:
                continue
            at = OffsetAndEpoch(batch.last_offset, batch.leader_epoch)
            _apply(batch, at, loader, warn)
            if not loader.in_transaction:
                provenance = Provenance(at, batch.max_timestamp)
    if is_empty:
        raise ShellError(
            f"{path} has no complete batch: it is neither a snapshot nor a metadata log"
        )
    return loader.image, provenance


def _apply(
    batch: RecordBatch, at: OffsetAndEpoch, loader: MetadataLoader, warn: Callable[[str], object]
) -> None:
    """Apply the records one by one: earlier records may be in a snapshot only."""
    for record in batch.records():
        try:
            loader.load_batch([decode_record(record.value)], at, MetadataDelta())
        except OttlaError as error:
            warn(f"the record at offset {record.offset} was not applied: {error}")
