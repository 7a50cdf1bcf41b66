"""`ottla.streams` on Spark: pauses, and the states that a listener is told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from ottla import Admin, Producer
from ottla.streams import ApplicationState, Streams, StreamsBuilder, StreamsConfig
from tests.spark.marks import SPARK_WARNINGS
from tests.spark.streams_topics import written
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.testing.cluster import Cluster

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(1500),
    *SPARK_WARNINGS,
]
WAIT_S = 300
QUIET_S = 3


def inverted(value: int) -> float:
    """Return four less a number, inverted: an error for four."""
    return 1 / (4 - value)


def test_an_application_is_paused_and_goes_on(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """Nothing is processed in the pause, all after it once; an error is found as it comes."""
    builder = StreamsBuilder(StreamsConfig("paused"))
    builder.stream("p-in").map_values(inverted).to("p-out")
    changes: list[ApplicationState] = []

    def send(value: int) -> None:
        with Producer(bootstrap_servers=node.bootstrap) as producer:
            producer.send("p-in", str(value).encode(), b"k", partition=0)

    def results() -> list[Any]:
        return written(node.bootstrap, "p-out").get("k", [])

    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for topic in ("p-in", "p-out"):
            admin.create_topic(topic, partitions=2)
    app = Streams(
        builder.build(), bootstrap_servers=node.bootstrap, checkpoint=tmp_path, spark=spark
    )
    app.set_state_listener(lambda new, _: changes.append(new))
    app.start()
    send(3)
    wait_for(lambda: results() == [1.0], WAIT_S)
    app.pause()
    send(2)
    assert not app.await_termination(QUIET_S)
    assert (results(), app.is_paused, app.state) == ([1.0], True, ApplicationState.RUNNING)
    app.resume()
    wait_for(lambda: results() == [1.0, 0.5], WAIT_S)
    send(4)
    wait_for(lambda: changes[-1] is ApplicationState.ERROR, WAIT_S)
    with pytest.raises(StreamingQueryException, match="division by zero"):
        app.await_termination(WAIT_S)
    app.stop()
    assert [one.name for one in changes] == [
        *["REBALANCING", "RUNNING"] * 2,
        *["PENDING_ERROR", "ERROR"],
    ]
