"""Version ranges in the notation of Kafka's message definitions: "3", "0-4", "7+", "none".

Kafka: org.apache.kafka.message.Versions.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

MAX_VERSION = 0x7FFF


class Versions(NamedTuple):
    """A closed range of versions; empty when lowest > highest."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.lowest > self.highest:
            return "none"
        if self.highest == MAX_VERSION:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS = Versions(0, -1)


@cache
def parse_versions(text: str) -> Versions:
    """Read "3", "0-4", "7+" or "none"; raise ValueError for anything else."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), MAX_VERSION)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))
