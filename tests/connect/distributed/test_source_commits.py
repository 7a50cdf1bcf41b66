"""The loop of a source task without a broker."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.connect.runtime.metrics import TaskMetrics
from ottla.connect.runtime.source_task import SourceLoop
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import pytest


def test_an_outage_of_the_offsets_does_not_end_a_task(caplog: pytest.LogCaptureFixture) -> None:
    """What could not be stored is stored the next time."""
    stored: list[Any] = []
    errors = [KafkaError(ErrorCode.REQUEST_TIMED_OUT), TimeoutError("no answer")]

    def put(_: str, entries: Any) -> None:
        if errors:
            raise errors.pop()
        stored.extend(entries)

    parts: Any = SimpleNamespace(
        id=SimpleNamespace(connector="c"),
        is_abandoned=False,
        commit=lambda: None,
        put=put,
        run=None,
        now_s=time.monotonic,
        metrics=TaskMetrics(),
    )
    loop = SourceLoop(
        parts,
        parts,
        parts,
        parts,
        producer=parts,
        store=parts,
        flush_interval_s=1.0,
        use_topic=lambda _: None,
    )
    loop._committable[b"k"] = ({"file": "x"}, {"position": 1})
    with caplog.at_level(logging.WARNING, "ottla.connect"):
        for _ in range(3):
            loop._try_to_commit()
    assert stored == [({"file": "x"}, {"position": 1})]
    assert len(caplog.records) == 2
