"""How a node leaves its cluster: its controlled shutdown, and waiting for that of others.

Kafka: BrokerServer.shutdown, BrokerLifecycleManager (PENDING_CONTROLLED_SHUTDOWN). Kafka waits for
five minutes, even without a quorum.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.server.system.workers import VolumeWorkers
from ottla.storage.log_set.jobs import run_all

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from ottla.metadata.image import MetadataImage
    from ottla.server.controller.quorum_view import QuorumView
    from ottla.server.system.environment import Environment
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.storage.log_set.log_set import LogSet

log = logging.getLogger("ottla.node")
CONTROLLED_SHUTDOWN_LIMIT_S: Final = 5.0
_OTHERS_LIMIT_S: Final = 1.0
_OTHERS_POLL_S: Final = 0.01
_QUORUM_POLL_S: Final = 0.05
_CLOSING_WORKERS: Final = 8


async def controlled_shutdown(
    left: Coroutine[Any, Any, None], quorum: QuorumView, *, election_s: float
) -> None:
    """Wait for `left`, the controller's consent; a broker without it is fenced later.

    A quorum that has had no leader for the time of an election is not waited for.
    """
    log.info("stopping: controlled shutdown", extra={"event": "node.stopping"})
    leaving = asyncio.ensure_future(left)
    lost = asyncio.ensure_future(_without_leader(quorum, election_s))
    await asyncio.wait(
        {leaving, lost}, timeout=CONTROLLED_SHUTDOWN_LIMIT_S, return_when=asyncio.FIRST_COMPLETED
    )
    if leaving.done():
        error = leaving.exception()
        reason = None if error is None else str(error)
    elif lost.done():
        reason = "the quorum has no leader"
    else:
        reason = f"the controller did not agree within {CONTROLLED_SHUTDOWN_LIMIT_S:.0f} s"
    leaving.cancel()
    lost.cancel()
    if reason is not None:
        log.warning(
            "controlled shutdown failed: %s; partitions stay without a leader for "
            "broker.session.timeout.ms unless this node starts again",
            reason,
            extra={"event": "node.controlled_shutdown"},
        )


async def _without_leader(quorum: QuorumView, limit_s: float) -> None:
    """Wait until the quorum has had no leader for this time."""
    elapsed_s = 0.0
    while elapsed_s < limit_s:
        await asyncio.sleep(_QUORUM_POLL_S)
        elapsed_s = 0.0 if quorum.has_leader else elapsed_s + _QUORUM_POLL_S


async def let_others_leave(image: MetadataImage) -> None:
    """Wait, for a limited time, for brokers in controlled shutdown: they need the quorum."""
    brokers = image.cluster.brokers
    with suppress(TimeoutError):
        async with asyncio.timeout(_OTHERS_LIMIT_S):
            while any(one.is_leaving for one in brokers.values()):  # noqa: ASYNC110 - rare, and short
                await asyncio.sleep(_OTHERS_POLL_S)


async def close_logs(
    logs: LogSet, environment: Environment, loop: asyncio.AbstractEventLoop
) -> None:
    """Flush and close the logs, many at a time: concurrent syncs share one journal commit."""
    workers = VolumeWorkers(partial(environment.start_workers, loop, _CLOSING_WORKERS))

    async def close(batches: Iterator[list[StorageJob]]) -> None:
        for jobs in batches:
            closed = loop.create_future()
            run_all(jobs, workers.run).on_done(lambda _done, closed=closed: closed.set_result(None))  # type: ignore[misc] # a lambda's default binds the loop's value
            await closed

    await asyncio.gather(*map(close, logs.closing_jobs()))
    workers.close()
