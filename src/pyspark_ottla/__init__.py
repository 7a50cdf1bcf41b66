"""The package through which Spark discovers the data source "ottla".

Spark searches top-level packages named `pyspark_*` for a `DefaultSource` when a session uses its
first Python data source.

Kafka: META-INF/services/org.apache.spark.sql.sources.DataSourceRegister of the connector's jar.
"""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
