"""Keeps commands that run within the test's process from what belongs to the process."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _java_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the JVM of the tests of Spark: a command owns its process, and begins without one.

    It reads the settings of a JVM only where it starts one, and ends the JVM that is there.
    """
    if "ottla.spark.jvm.local_session" in sys.modules:  # else there is none
        monkeypatch.setattr("ottla.spark.jvm.local_session._launched", [])
        for name in ("_gateway", "_jvm"):
            monkeypatch.setattr(f"pyspark.SparkContext.{name}", None)
