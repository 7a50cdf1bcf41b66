"""Kafka Streams' TopologyTestDriver on described topologies: many in one JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conformance.kafka import Kafka, kafka_or_skip
from tests.maven import fetched

if TYPE_CHECKING:
    from tests.streams.cases import Input, Step

HERE = Path(__file__).parent
_MARK = "ANSWERS"


def streams_jars() -> Kafka:
    """Return the jars of Kafka Streams, fetched by Maven on first use."""
    kafka_or_skip()  # says what is missing: Java or Maven
    libraries = fetched("kafka-streams-4.3.0", HERE / "pom.xml")
    return Kafka(libraries, libraries.parent)


def answers(
    cases: list[tuple[list[Step], list[Input]]],
    *,
    is_wrapped: bool = False,
    are_stores_in_memory: bool = False,
) -> list[dict[str, Any]]:
    """Return what Kafka Streams does with each topology: its description, and what it writes.

    With a wrapper also how many records each processor gets.
    """
    kafka = streams_jars()
    classes = kafka.compile(HERE / "StreamsOracle.java")
    given = [
        {
            "steps": steps,
            "inputs": inputs,
            "outputs": ["out"],
            "wrapped": is_wrapped,
            "memory": are_stores_in_memory,
        }
        for steps, inputs in cases
    ]
    done = kafka.run("StreamsOracle", classes=classes, stdin=json.dumps(given), timeout_s=800)
    found: list[dict[str, Any]] = json.loads(done.stdout.partition(_MARK)[2])
    return found
