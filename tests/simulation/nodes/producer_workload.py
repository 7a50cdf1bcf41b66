"""What seeded runs of one producer on a node that does not stay up have in common."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Self

from ottla.testing.simulation.environment import SimulatedClock
from ottla.testing.simulation.node import SimulatedNode
from tests.simulation.nodes.model import InvariantViolated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.producer.producer import AsyncProducer


class ProducerWorkload:
    """`run` drives one seed to its end and raises InvariantViolated when a promise is broken."""

    def __init__(self, seed: int, kind: str, config: Mapping[str, str]) -> None:
        self.seed = seed
        self.simulation = SimulatedNode(seed, config=config)
        self._rng = Random(f"{seed}/{kind}")
        self._clock = SimulatedClock(self.simulation.loop)
        self._producer: AsyncProducer | None = None

    def run(self) -> Self:
        """Run all steps and check; return itself."""
        try:
            self.simulation.run(self._main())
        except InvariantViolated:
            raise
        except Exception as error:
            raise InvariantViolated(f"{self._name} fails: {error!r}") from error
        return self

    @property
    def _name(self) -> str:
        return f"{type(self).__name__}({self.seed}).run()"

    def _check(self, condition: object, text: str) -> None:
        if not condition:
            raise InvariantViolated(f"{self._name}: {text}")

    async def _main(self) -> None:
        raise NotImplementedError

    async def _open_producer(self) -> None:
        self._producer = await self.simulation.producer(
            linger_ms=0, request_timeout_ms=3000, delivery_timeout_ms=4000
        ).start()

    async def _close_producer(self) -> None:
        assert self._producer is not None
        await self._producer.close()

    async def _wait(self) -> None:
        await asyncio.sleep(self._rng.random() * 8)

    async def _end(self) -> str:
        """Close the producer and end the node in some way; return how."""
        await self._close_producer()
        kind = self._rng.choice(("stop", "kill", "power cut"))
        if kind == "stop":
            await self.simulation.stop()
        else:
            self.simulation.kill(power=kind == "power cut")
        return kind

    async def _begin_again(self) -> None:
        await self.simulation.start()
        await self._open_producer()
