"""One node and one Spark session for all tests of the Spark source; both start when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    """Give a node that the tests of a module share."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give a session; its JVM is ended with the test run."""
    pytest.importorskip("pyspark")
    from ottla.spark.jvm.local_session import session, stop

    made = session("ottla tests", class_cache=False, fast_start=True)
    yield made
    stop(made)
