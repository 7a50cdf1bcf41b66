"""Two drivers of one query, a reset group, another query's group: one line each, without a JVM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from ottla import Admin
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.cluster import open_cluster
from ottla.spark.exactly_once import ExactlyOnce
from ottla.spark.options import write_options
from ottla.streams.supervisor import is_final

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.cluster import Cluster


def checkpoint(directory: Path, query_id: str) -> str:
    """Write what the sink reads of a checkpoint: the query's id, and a batch without sources."""
    (directory / "offsets").mkdir(parents=True)
    (directory / "metadata").write_text(json.dumps({"id": query_id}))
    (directory / "offsets" / "0").write_text("v1\n{}\n")
    return str(directory)


def test_a_second_driver_fences_the_first(node: Cluster, tmp_path: Path) -> None:
    """The first one can decide nothing from then on, and says who goes on."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("fenced")
    options = write_options(
        {
            "kafka.bootstrap.servers": node.bootstrap,
            "topic": "fenced",
            "kafka.group.id": "two-drivers",
        }
    )
    location = checkpoint(tmp_path / "one", "query")
    config = {"bootstrap.servers": node.bootstrap}
    with open_cluster(config) as first_cluster, open_cluster(config) as second_cluster:
        first = ExactlyOnce(options, location, first_cluster)
        second = ExactlyOnce(options, location, second_cluster)
        plan = first.begin()
        other = second.begin()
        with pytest.raises(KafkaError, match="another driver runs this query") as refused:
            first.commit(plan, 0, [])
        second.commit(other, 0, [])
        assert refused.value.code is ErrorCode.PRODUCER_FENCED
        assert "\n" not in str(refused.value)
        assert is_final(RuntimeError(f"{refused.value.code.name}: {refused.value}"))
        other_query = ExactlyOnce(options, checkpoint(tmp_path / "two", "other"), first_cluster)
        with pytest.raises(KafkaError, match="another checkpoint"):
            other_query.begin()
