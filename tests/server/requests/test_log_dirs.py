"""Descriptions of log directories when a disk does not answer."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from ottla.purgatory.work import Worker
from ottla.server.handlers.replicas import describe_log_dirs


def _lost_space() -> int:
    raise OSError(errno.EIO, "the disk fails")


def test_a_directory_whose_space_cannot_be_read_hides_no_other() -> None:
    """Its own result has Kafka's error for it; the others are described."""
    directories = [
        SimpleNamespace(
            path=path,
            is_online=True,
            is_short_of_space=False,
            directory=SimpleNamespace(total_space=total, free_space=lambda: 1),
        )
        for path, total in (("/lost", _lost_space), ("/good", lambda: 2))
    ]
    logs = SimpleNamespace(
        directories=directories,
        table=SimpleNamespace(logs_in=lambda _dir: []),
        cordoned=frozenset(),
    )
    broker = SimpleNamespace(logs=logs, worker=Worker(lambda _turn: None))
    ctx: Any = SimpleNamespace(broker=broker, client="10.0.0.1")
    answer = describe_log_dirs(ctx, DescribeLogDirsRequest(topics=None))
    lost, good = answer.value.results
    assert (lost.log_dir, lost.error_code) == ("/lost", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert (good.log_dir, good.error_code, good.total_bytes, good.usable_bytes) == (
        "/good",
        0,
        2,
        1,
    )
