"""Share fetches whose disk fails: the error is theirs, not that of the turn that wakes them."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

from ottla.errors import ErrorCode
from ottla.replication.share.partition import Phase
from ottla.server.share.delayed_fetch import DelayedShareFetch, ShareFetchLimits
from ottla.types import FileSlice


class LostFile:
    """A file that cannot be opened: no descriptor is left."""

    volume = "/d/"

    def is_cached(self, _position: int, _size: int) -> bool:
        raise OSError(errno.EMFILE, "no descriptor left")

    def pin(self) -> None:
        raise OSError(errno.EMFILE, "no descriptor left")

    def read(self, _position: int, _size: int) -> bytes:
        raise OSError(errno.EMFILE, "no descriptor left")


def test_a_file_that_cannot_be_opened_is_an_error_of_its_partition() -> None:
    """A deadline or a producer's append completes the fetch; neither meets the error."""
    file: Any = LostFile()
    partition: Any = SimpleNamespace(
        key="key",
        phase=Phase.ACTIVE,
        can_acquire=True,
        leader_epoch=0,
        end_offset=0,
        next_fetch_offset=lambda: 0,
        settings=SimpleNamespace(is_committed_only=False),
        environment=SimpleNamespace(clock=SimpleNamespace(monotonic_ms=lambda: 0)),
        measures=SimpleNamespace(fetched=lambda _begin_ms, _end_ms: None),
        replica=SimpleNamespace(
            check_leader=lambda _epoch: None,
            read=lambda *_arguments: (FileSlice(file, 0, 100), None),
        ),
    )
    limits = ShareFetchLimits("member", 0, 1, 1000, 10, 10, is_strict=False)
    fetch = DelayedShareFetch(
        lambda _key, _error: None,
        {"name": partition},
        limits,
        0,
        lambda _volume, job, done: done(job(), None),
    )
    assert fetch.try_complete()
    error = fetch.answer.value["name"].error
    assert error is not None
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
