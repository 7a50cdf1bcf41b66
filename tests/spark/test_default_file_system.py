"""Where a checkpoint is that names no file system: by Hadoop's own classes, and here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.spark.checkpoint_files import open_files, qualified

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.conformance, pytest.mark.spark]
DEFAULTS = ("hdfs://127.0.0.1:1", "hdfs://127.0.0.1:1/sub/", "webhdfs://127.0.0.1:1")
LOCATIONS = (
    "/a/b",
    "a/b",
    "a b/c",
    "hdfs:/a",
    "hdfs:///a/b",
    "webhdfs:///a",
    "hdfs://127.0.0.1:2/a",
    "webhdfs://127.0.0.1:2/a/b",
)


def of_hadoop(spark: SparkSession, default: str, location: str) -> str | None:
    """Return what Spark makes of a checkpoint's location; None for an error."""
    jvm: Any = spark._jvm
    settings = jvm.org.apache.hadoop.conf.Configuration(False)
    settings.set("fs.defaultFS", default)
    path = jvm.org.apache.hadoop.fs.Path(location)
    try:
        return str(path.getFileSystem(settings).makeQualified(path).toString())
    except Exception:
        return None


@pytest.mark.parametrize("default", DEFAULTS)
def test_paths_are_qualified_as_by_hadoop(spark: SparkSession, default: str) -> None:
    """Of each kind of default file system that is in Spark's own jars."""
    settings = {"fs.defaultfs": default}
    found = {one: of_hadoop(spark, default, one) for one in LOCATIONS}
    for location, text in found.items():
        here = qualified(location, settings)
        if text is None:
            with pytest.raises(ValueError, match=r"give (web)?hdfs://HOST"):
                open_files(here, settings)
        else:
            assert here == text
    assert sum(text is None for text in found.values()) <= 2
