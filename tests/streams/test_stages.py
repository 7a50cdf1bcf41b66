"""The chain of stages that Spark runs, and the order of a micro-batch's records."""

from __future__ import annotations

from ottla.streams import StreamsBuilder, StreamsConfig
from ottla.streams.data.records import RawRecord
from ottla.streams.plan.plan import layout, plan_for
from ottla.streams.run.spark_tasks import in_order


def test_a_stage_follows_those_that_it_reads_from() -> None:
    """Internal topics lead to later stages; their partitions are those of their writer."""
    builder = StreamsBuilder()
    counted = builder.stream("in").group_by(lambda _, value: value).count()
    counted.to_stream().to("out")
    plan = plan_for(builder.build(), {"in": 3, "out": 1})
    assert [stage.is_stateful for stage in plan.stages] == [False, True]
    (topic,) = plan.targets
    assert (plan.targets[topic], plan.partitions[topic], plan.real_topics) == ((1,), 3, {})


def test_a_circle_has_a_real_topic() -> None:
    """A foreign-key join answers to the stage that asked."""
    builder = StreamsBuilder(StreamsConfig(application_id="app"))
    left, right = builder.table("left"), builder.table("right")
    left.join(right, lambda a, b: [a, b], foreign_key=lambda _, v: v).to_stream().to("out")
    plan = layout(builder.build())
    (real,) = plan.real_topics.values()
    assert real.startswith("app-KTABLE-FK-JOIN-SUBSCRIPTION-")
    assert real in plan.source_topics()


def test_records_are_taken_from_the_queue_with_the_lowest_timestamp() -> None:
    """Within a queue by offset; global topics before all others."""

    def record(topic: str, offset: int, timestamp: int) -> RawRecord:
        return RawRecord(topic, None, None, timestamp, (), 0, offset)

    given = [
        (0, record("a", 1, 3)),
        (0, record("a", 0, 9)),
        (0, record("b", 0, 5)),
        (0, record("b", 1, 12)),
        (1, record("g", 0, 99)),
    ]
    found = [(one.topic, one.offset) for one in in_order(given, {"g"})]
    assert found == [("g", 0), ("b", 0), ("a", 0), ("a", 1), ("b", 1)]
