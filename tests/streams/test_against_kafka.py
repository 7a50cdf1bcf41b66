"""Random topologies and inputs: the same results as Kafka Streams 4.3.0's own test driver."""

from __future__ import annotations

import re
from typing import ClassVar

import pytest

from ottla.streams import (
    Processor,
    ProcessorWrapper,
    Record,
    StreamsException,
    TopologyException,
    WrappedProcessor,
)
from tests.streams.cases import built, run
from tests.streams.generated import KINDS, Generator
from tests.streams.named import TOPOLOGIES, described
from tests.streams.oracle import HERE, answers, streams_jars

SEEDS = 10
_CLASS = re.compile(r"extractor class: [^)]*")
_NAMES = re.compile(r"((?:-->|<--|stores:) )\[?(.*?)\]?\)?$")


def normalized(description: str) -> list[str]:
    """Return a description without the names of classes, whose lists have the order of names.

    Kafka's have that of hash tables.
    """
    description = _CLASS.sub("extractor class", description)

    def ordered(match: re.Match[str]) -> str:
        return match[1] + ", ".join(sorted(match[2].split(", ")))

    return sorted(_NAMES.sub(ordered, line.strip()) for line in description.splitlines())


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_results_and_descriptions_are_those_of_kafka_streams() -> None:
    """Every record of every case, in its order, with its timestamp; and the text form."""
    generators = [Generator(seed, kind) for kind in KINDS for seed in range(SEEDS)]
    cases = [(one.make(), one.inputs()) for one in generators]
    for (steps, inputs), answer in zip(cases, answers(cases), strict=True):
        if "error" in answer:
            assert re.search("TopologyException|singleton set", answer["error"]), answer["error"]
            with pytest.raises((TopologyException, StreamsException)):
                run(steps, inputs, ["out"])
            continue
        assert [list(one) for one in run(steps, inputs, ["out"])] == answer["outputs"], steps
        assert normalized(built(steps).describe()) == normalized(answer["describe"]), steps


class Counting(ProcessorWrapper):
    """Counts the records of each processor."""

    seen: ClassVar[dict[str, int]] = {}

    def wrap(self, name: str, processor: Processor) -> Processor:
        """Return what counts."""
        self.seen.setdefault(name, 0)

        class Counted(WrappedProcessor):
            def process(self, record: Record) -> None:
                Counting.seen[name] += 1
                self.wrapped.process(record)

        return Counted(processor)


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_a_wrapper_has_the_processors_and_records_that_it_has_in_kafka_streams() -> None:
    """Those of the DSL as well; the results stay."""
    generators = [Generator(seed, kind) for kind in KINDS for seed in range(2)]
    cases = [(one.make(), one.inputs()) for one in generators]
    for (steps, inputs), answer in zip(cases, answers(cases, is_wrapped=True), strict=True):
        if "error" in answer:
            continue
        Counting.seen.clear()
        found = run(steps, inputs, ["out"], wrapper=Counting)
        assert [list(one) for one in found] == answer["outputs"], steps
        assert Counting.seen == answer["wrapped"], steps


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_names_are_given_and_counted_as_in_kafka_streams() -> None:
    """Of nodes, stores and internal topics, where some parts have names of the program."""
    kafka = streams_jars()
    classes = kafka.compile(HERE / "NamedTopologies.java")
    done = kafka.run("NamedTopologies", classes=classes, stdin="", timeout_s=800)
    found = dict(part.split("\n", 1) for part in done.stdout.split("== ")[1:])
    assert found.keys() == TOPOLOGIES.keys()
    for title, description in found.items():
        assert normalized(described(title).strip()) == normalized(description.strip()), title
