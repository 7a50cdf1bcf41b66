"""Random choices of a session: names, numbers and versions, mostly sensible, sometimes odd.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.server.requests.api import served_apis
from ottla.types import ZERO_UUID
from tests.conformance.sessions.batches import FLAWS
from tests.conformance.sessions.steps import Records, Ref

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from ottla.protocol.api_keys import ApiKey

T = TypeVar("T")
TOPICS = tuple(f"{{}}-t{number}" for number in range(4))
ODD_TOPICS = ("{}-absent", "{}-absent", "a b", "", "..", "x" * 250)
GROUPS = tuple(f"{{}}-g{number}" for number in range(3))
ODD_GROUPS = ("", "{}-absent", "{} odd/group")
CLIENTS = 10
ODD = 0.08
INT16 = (0, 1, -1, -2, 2**15 - 1, -(2**15))
INT32 = (0, 1, -1, -2, 2**31 - 1, -(2**31))
INT64 = (0, 1, -1, -2, 2**63 - 1, -(2**63))
_ODD_FACTORS = (0.4, 1.0, 1.0, 2.5)
_MAX_ODD = 0.6


class Choices:
    """Draws the parts of requests from one seeded source.

    Sessions with few odd values reach states that the others do not, and the other way round.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self._number = 0
        self._odd_factor = rng.choice(_ODD_FACTORS)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def one(self, *values: T) -> T:
        """Return one of the values."""
        return values[self.rng.randrange(len(values))]

    def mostly(self, usual: T, *odd: T, odds: float = ODD) -> T:
        """Return the usual value, rarely an odd one."""
        return self.one(*odd) if self.chance(min(odds * self._odd_factor, _MAX_ODD)) else usual

    def int32(self, usual: int, odds: float = 0.04) -> int:
        """Return a number, rarely one at an end of its type."""
        return self.mostly(usual, *INT32, odds=odds)

    def some(self, values: Sequence[T], most: int) -> list[T]:
        """Return one to `most` of the values, rarely none or one twice."""
        chosen = [self.one(*values) for _ in range(self.rng.randint(1, most))]
        chosen = list(dict.fromkeys(chosen))
        return self.mostly(chosen, [], chosen + chosen[:1], odds=0.05)

    def version(self, key: ApiKey) -> int:
        """Return a served version, the newest and the oldest ones more often."""
        api = served_apis("broker")[key]
        if self.chance(0.3):
            return api.highest
        if self.chance(0.15):
            return api.lowest
        return self.rng.randint(api.lowest, api.highest)

    def number(self) -> int:
        """Return the next number, for values that tell where they come from."""
        self._number += 1
        return self._number

    def topic(self) -> str:
        """Return a topic's name."""
        return self.mostly(self.one(*TOPICS[:2], *TOPICS[:2], *TOPICS), *ODD_TOPICS, odds=0.05)

    def topics(self, most: int = 3) -> list[str]:
        """Return some topics' names."""
        return self.some([self.topic() for _ in range(most)], most)

    def topic_id(self, name: str, *, may_be_zero: bool = True) -> Any:
        """Return the id of a topic, of the right one as a rule."""
        known = Ref("topic_id", (self.mostly(name, *TOPICS, "{}-absent", odds=0.05),))
        return ZERO_UUID if may_be_zero and self.chance(0.01) else known

    def partition(self) -> int:
        """Return a partition's number."""
        return self.mostly(self.one(0, 0, 0, 0, 1, 2), 7, -1, *INT32[-2:])

    def partitions(self, most: int = 3) -> list[int]:
        """Return some partitions' numbers."""
        return self.some([self.partition() for _ in range(most)], most)

    def group(self) -> str:
        """Return a group's id."""
        return self.mostly(self.one(*GROUPS[:1], *GROUPS[:1], *GROUPS), *ODD_GROUPS, odds=0.05)

    def offset(self) -> int:
        """Return an offset that may exist."""
        return self.mostly(self.rng.randint(0, 30), -1, -2, -5, 10**6, *INT64[-2:])

    def epoch(self) -> int:
        """Return a leader epoch as a client knows it."""
        return self.mostly(self.one(-1, 0), 1, 9, *INT32[3:])

    def member(self, group: str) -> Any:
        """Return a reference to a member id of the group, rarely something else."""
        known = Ref("member", (group, self.rng.randrange(8)))
        other = Ref("member", (self.one(*GROUPS), self.rng.randrange(8)))
        return self.mostly(known, "", "unknown", other)

    def instance(self, odds: float = 0.1) -> str | None:
        """Return no instance id as a rule."""
        return self.one("i0", "i1", "i0", "i1", "") if self.chance(odds) else None

    def generation(self, group: str) -> Any:
        """Return the group's generation as a rule."""
        return self.mostly(
            Ref("generation", (group, 0)), Ref("generation", (group, -1)), *INT32, 99
        )

    def records(self, topic: str, partition: int, flaws: Sequence[str] = FLAWS) -> Records:
        """Return a batch: good, of an idempotent producer, compressed or flawed.

        Without flaws to choose from it is one that every version may send.
        """
        producer = self.one(0, 1, 2) if self.chance(0.4) else None
        return Records(
            topic=topic,
            partition=partition,
            number=self.number(),
            count=self.mostly(self.rng.randint(1, 5), 60, odds=0.05),
            codec=self.one(1, 2, 3, *([4] if flaws else [])) if self.chance(0.3) else 0,
            producer=producer,
            sequence_step=self.mostly(0, 1, 5, -1, -2, -3, odds=0.25)
            if producer is not None
            else 0,
            epoch_step=self.mostly(0, 1, -1, odds=0.08) if producer is not None else 0,
            flaw=self.mostly("", *flaws) if flaws else "",
            time_step_ms=self.mostly(0, -50_000, 50_000, 10**12, odds=0.2),
        )
