"""The Spark examples of `examples/`, in the session that the tests share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples import spark_batch, spark_foreach_batch, spark_join, spark_windows
from tests.spark.marks import SPARK_WARNINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing.cluster import Cluster

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    *SPARK_WARNINGS,
]
NOTEBOOK = Path(__file__).parents[2] / "examples" / "spark_notebook.ipynb"


def test_batch(spark: SparkSession, node: Cluster) -> None:
    """A DataFrame is written and read back."""
    assert spark_batch.run(spark, node.bootstrap) == 1000


def test_windows(spark: SparkSession, node: Cluster) -> None:
    """Ten minutes of three pages."""
    assert spark_windows.run(spark, node.bootstrap) == 30


def test_join(spark: SparkSession, node: Cluster) -> None:
    """Every order but one was paid."""
    paid = spark_join.run(spark, node.bootstrap)
    assert paid == {str(number): number != 7 for number in range(10)}


def test_foreach_batch(spark: SparkSession, node: Cluster) -> None:
    """The last totals of a topic of changes."""
    totals = spark_foreach_batch.run(spark, node.bootstrap)
    assert totals == {f"shop-{shop}": sum(range(shop, 30, 3)) for shop in range(3)}


def test_notebook(spark: SparkSession, node: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook has the format's fields and no stored output; its cells run in order."""
    assert spark.version
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", node.bootstrap)
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert {cell["cell_type"] for cell in notebook["cells"]} == {"code", "markdown"}
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            exec("".join(cell["source"]), names)
    assert names["summary"].to_dict() == {"Lima": 24.0, "Oslo": 1.0}
