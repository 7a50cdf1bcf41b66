"""The package through which Spark discovers the data source "ottla-table", as `pyspark_ottla` is.

PYTEST_DONT_REWRITE: otherwise pytest would warn in every run that the package was imported before.

Kafka: none.
"""


def __getattr__(name: str) -> object:
    """Load the data source on first access."""
    if name == "DefaultSource":
        from ottla.spark.table_source import TableDataSource

        return TableDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
