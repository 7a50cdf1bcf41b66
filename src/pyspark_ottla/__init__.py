"""The package through which Spark discovers the data source "ottla".

Spark searches top-level packages named `pyspark_*` for a `DefaultSource` when a session uses its
first Python data source. The source is loaded on access, because `pyspark_ottla.driver_python` runs
at the start of every Python process; for the same reason neither imports `typing`.

PYTEST_DONT_REWRITE: otherwise pytest would warn in every run that the package was imported before.

Kafka: META-INF/services/org.apache.spark.sql.sources.DataSourceRegister of the connector's jar.
"""


def __getattr__(name: str) -> object:
    """Load the data source on first access."""
    if name == "DefaultSource":
        from ottla.spark.source import OttlaDataSource

        return OttlaDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
