"""One node and one Spark session for all tests of the Spark source; both start when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    """Give a node that the tests of a module share."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the directory of what the session writes: spark.log and the event log."""
    path = tmp_path_factory.mktemp("spark")
    (path / "events").mkdir()
    return path


@pytest.fixture(scope="session")
def spark(spark_files: Path) -> Iterator[SparkSession]:
    """Give a session; its JVM is ended with the test run."""
    pytest.importorskip("pyspark")
    from ottla.spark.jvm.local_session import session, stop

    config = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (spark_files / "events").as_uri(),
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={spark_files / 'derby.log'}",
    }
    made = session(
        "ottla tests", class_cache=False, fast_start=True, temp_dir=spark_files, config=config
    )
    yield made
    stop(made)
