"""Sync and asyncio consumers treat an error of the commit before a revocation alike."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.blocking import Consumer
from ottla.clients.consumer.consumer import AsyncConsumer
from ottla.clients.consumer.membership import ListenerCall
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

STEP = ListenerCall("revoked", (TopicPartition("t", 0),))


def _consumers(error: Exception, done: list[ListenerCall]) -> dict[str, Callable[[], None]]:
    """Return what runs the step in each of them, with a commit that fails."""

    async def commit(**limits: float) -> None:
        assert limits == {"timeout": 2.0}
        raise error

    core: Any = SimpleNamespace(
        group=SimpleNamespace(step_done=done.append),
        auto_commit=True,
        settings=SimpleNamespace(default_api_timeout_ms=2000),
        subscription=SimpleNamespace(listener=None),
        runtime=SimpleNamespace(lock=nullcontext()),
    )
    asynchronous: Any = AsyncConsumer.__new__(AsyncConsumer)
    asynchronous._core, asynchronous.commit = core, commit
    sync: Any = Consumer.__new__(Consumer)
    sync._core, sync._async, sync._thread = core, asynchronous, SimpleNamespace(call=asyncio.run)
    return {
        "async": lambda: asyncio.run(asynchronous._run_step(STEP)),
        "sync": lambda: sync._run_step(STEP),
    }


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_error_of_the_cluster_delays_no_revocation(kind: str) -> None:
    """The records are read again by whoever gets the partition."""
    done: list[ListenerCall] = []
    _consumers(KafkaError(ErrorCode.REQUEST_TIMED_OUT), done)[kind]()
    assert done == [STEP]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_any_other_error_is_raised(kind: str) -> None:
    """It is one of the program, as of an interceptor."""
    with pytest.raises(RuntimeError, match="planted"):
        _consumers(RuntimeError("planted"), [])[kind]()
