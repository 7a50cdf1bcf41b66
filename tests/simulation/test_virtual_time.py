"""A whole node and native clients on virtual time: no sockets, threads or clocks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.testing.simulation.loop import Deadlock, SimulatedLoop
from ottla.testing.simulation.node import SimulatedNode

if TYPE_CHECKING:
    from ottla.testing.simulation.loop import Trace


def _round_trip(seed: int) -> tuple[list[bytes | None], Trace]:
    simulation = SimulatedNode(seed)

    async def work() -> list[bytes | None]:
        await simulation.start()
        async with simulation.producer() as producer:
            for number in range(3):
                await producer.send_and_wait("t", b"%d" % number)
        values: list[bytes | None] = []
        async with simulation.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            while len(values) < 3:
                values += [record.value for record in await consumer.poll(1.0)]
        await simulation.stop()
        return values

    return simulation.run(work()), simulation.trace


def test_a_node_serves_native_clients_on_virtual_time() -> None:
    """Producer and group consumer make a round trip; a second run has the same events."""
    values, trace = _round_trip(1)
    assert values == [b"0", b"1", b"2"]
    assert min(trace.counts[kind] for kind in ("message", "timer", "file", "job")) > 0
    assert _round_trip(1)[1].digest() == trace.digest()
    assert _round_trip(2)[1].digest() != trace.digest()


def test_a_record_costs_its_producer_one_poll() -> None:
    """What a poll sends leaves at its end: it requests no second poll."""
    simulation = SimulatedNode(1)
    polls = 0

    async def work() -> None:
        nonlocal polls
        await simulation.start()
        async with simulation.producer(linger_ms=0) as producer:
            await producer.send_and_wait("t", b"first")
            client = producer._core.client
            poll = client.poll

            def count(now_ms: int) -> None:
                nonlocal polls
                polls += 1
                poll(now_ms)

            client.poll = count  # type: ignore[method-assign]
            for _ in range(50):
                await producer.send_and_wait("t", b"next")
            client.poll = poll  # type: ignore[method-assign]
        await simulation.stop()

    simulation.run(work())
    assert 50 <= polls < 60


def test_time_jumps_to_the_next_timer_in_the_order_of_setting() -> None:
    """An hour passes at once; equal times fire in order."""
    loop = SimulatedLoop()
    fired: list[int] = []

    async def work() -> float:
        for number in range(3):
            loop.call_later(3600, fired.append, number)
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run(work()) == pytest.approx(3600, abs=0.001)
    assert fired == [0, 1, 2]


def test_waiting_for_nothing_is_a_deadlock() -> None:
    """A future that is never completed ends the run instead of hanging it."""
    loop = SimulatedLoop()

    async def work() -> None:
        await loop.create_future()

    with pytest.raises(Deadlock, match="nothing is left to happen"):
        loop.run(work())
