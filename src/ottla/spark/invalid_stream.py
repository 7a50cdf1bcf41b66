"""The reader of a stream that cannot be read: its methods raise what is wrong.

PySpark hides an error of `streamReader` behind an UnboundLocalError of its own, so the error is
raised by the first method that Spark calls.

Kafka: none; the connector validates options in the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ottla.spark.error_text import short_errors

if TYPE_CHECKING:
    from ottla.errors import KafkaError


class InvalidStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error of its options or columns."""

    def __init__(self, error: KafkaError) -> None:
        self._error = error

    def _fail(self) -> NoReturn:
        with short_errors():
            raise self._error
        raise AssertionError

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._fail()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._fail()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Raise the error."""
        self._fail()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._fail()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:  # noqa: ARG002
        """Raise the error."""
        self._fail()

    def read(self, partition: Any) -> NoReturn:  # noqa: ARG002 - Spark's
        """Raise the error."""
        self._fail()
