"""What users do in `on_delivery`, and after the producer was closed."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ottla.clients.producer.producer import call_on_delivery
from tests.clients.test_producer import Rig

if TYPE_CHECKING:
    import pytest

    from ottla.clients.producer.batches import Delivery


def _raises(_delivery: Delivery) -> None:
    raise ZeroDivisionError


def test_a_callback_that_raises_costs_no_other_record(caplog: pytest.LogCaptureFixture) -> None:
    """Callbacks beside it, the other batches of the answer and later records are not touched."""
    rig = Rig(partitions=3, linger_ms=5)
    first = rig.send(b"a", 0)
    told: list[int] = []
    first.batch.callbacks = [(0, _raises), (0, lambda done: told.append(done.metadata.offset))]
    others = [rig.send(b"b", partition) for partition in (1, 2)]
    with caplog.at_level(logging.ERROR):
        rig.finish()
    assert [one.metadata.offset for one in others] == [0, 0]
    assert told == [0]
    assert "Error executing user-provided callback on message for topic-partition 't-0'" in (
        caplog.text
    )
    later = [rig.send(b"c", partition) for partition in range(3)]
    rig.finish()
    assert [one.metadata.offset for one in later] == [1, 1, 1]


def test_a_callback_that_comes_late_and_raises_is_logged_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A record that is done already calls back at once; `send` returns all the same."""
    rig = Rig()
    done = rig.send(b"a")
    rig.finish()
    done.batch.owner = SimpleNamespace(runtime=SimpleNamespace(lock=nullcontext()))
    with caplog.at_level(logging.ERROR):
        call_on_delivery(done, _raises)
    assert "ZeroDivisionError" in caplog.text
