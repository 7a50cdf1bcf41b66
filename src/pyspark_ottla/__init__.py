"""Where Spark finds the data source "ottla" by itself.

Spark looks through top-level packages named `pyspark_*` for a `DefaultSource` when the first Python
data source of a session is asked for.

Kafka: META-INF/services/org.apache.spark.sql.sources.DataSourceRegister of the connector's jar.
"""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
