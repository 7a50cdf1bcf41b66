"""Kafka Streams' DSL and Processor API in Python, run by Spark.

Kafka: org.apache.kafka.streams. A topology is plain data; `Streams` runs it with Spark,
`ottla.testing.PipelineDriver` runs it record by record without Spark and without a broker.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ottla.streams.columns.expression import count_rows, expr, max_of, min_of, sum_of
    from ottla.streams.config import (
        ErrorContext,
        Response,
        StreamsConfig,
        log_and_continue,
        log_and_fail,
    )
    from ottla.streams.data.records import (
        AggregationWithHeaders,
        Change,
        Record,
        RecordContext,
        RecordMetadata,
        TaskId,
        ValueAndTimestamp,
        ValueTimestampHeaders,
        VersionedRecord,
    )
    from ottla.streams.data.serdes import Serde, Serdes
    from ottla.streams.data.windows import (
        EmitStrategy,
        JoinWindows,
        SessionWindows,
        SlidingWindows,
        TimeWindows,
        UnlimitedWindows,
        Window,
        Windowed,
    )
    from ottla.streams.dsl.builder import StreamsBuilder
    from ottla.streams.dsl.grouped import CogroupedKStream, KGroupedStream, KGroupedTable
    from ottla.streams.dsl.settings import (
        AutoOffsetReset,
        Branched,
        Consumed,
        Grouped,
        Joined,
        Materialized,
        Printed,
        Produced,
        Repartitioned,
        StreamJoined,
        Suppressed,
        TableJoined,
    )
    from ottla.streams.dsl.stream import KStream
    from ottla.streams.dsl.table import GlobalKTable, KTable
    from ottla.streams.errors import SerializationException, StreamsException, TopologyException
    from ottla.streams.processors.processor import (
        Processor,
        ProcessorContext,
        ProcessorWrapper,
        PunctuationType,
        ValueTransformer,
        WrappedProcessor,
    )
    from ottla.streams.query.instances import KeyQueryMetadata, LagInfo, StreamsMetadata
    from ottla.streams.query.state_queries import (
        FailureReason,
        KeyQuery,
        MultiVersionedKeyQuery,
        QueryResult,
        RangeQuery,
        StateQueryRequest,
        StateQueryResult,
        TimestampedKeyQuery,
        TimestampedRangeQuery,
        VersionedKeyQuery,
        WindowKeyQuery,
        WindowRangeQuery,
    )
    from ottla.streams.run.application import Streams
    from ottla.streams.run.lifecycle import ApplicationState
    from ottla.streams.stores.specs import BuiltInDslStoreSuppliers, DslStoreSuppliers, Stores
    from ottla.streams.topology.topology import Topology

__all__ = [
    "AggregationWithHeaders",
    "ApplicationState",
    "AutoOffsetReset",
    "Branched",
    "BuiltInDslStoreSuppliers",
    "Change",
    "CogroupedKStream",
    "Consumed",
    "DslStoreSuppliers",
    "EmitStrategy",
    "ErrorContext",
    "FailureReason",
    "GlobalKTable",
    "Grouped",
    "JoinWindows",
    "Joined",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyQuery",
    "KeyQueryMetadata",
    "LagInfo",
    "Materialized",
    "MultiVersionedKeyQuery",
    "Printed",
    "Processor",
    "ProcessorContext",
    "ProcessorWrapper",
    "Produced",
    "PunctuationType",
    "QueryResult",
    "RangeQuery",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "Repartitioned",
    "Response",
    "Serde",
    "Serdes",
    "SerializationException",
    "SessionWindows",
    "SlidingWindows",
    "StateQueryRequest",
    "StateQueryResult",
    "Stores",
    "StreamJoined",
    "Streams",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsException",
    "StreamsMetadata",
    "Suppressed",
    "TableJoined",
    "TaskId",
    "TimeWindows",
    "TimestampedKeyQuery",
    "TimestampedRangeQuery",
    "Topology",
    "TopologyException",
    "UnlimitedWindows",
    "ValueAndTimestamp",
    "ValueTimestampHeaders",
    "ValueTransformer",
    "VersionedKeyQuery",
    "VersionedRecord",
    "Window",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "Windowed",
    "WrappedProcessor",
    "count_rows",
    "expr",
    "log_and_continue",
    "log_and_fail",
    "max_of",
    "min_of",
    "sum_of",
]

_NAMES = {
    "columns.expression": "count_rows expr max_of min_of sum_of",
    "config": "ErrorContext Response StreamsConfig log_and_continue log_and_fail",
    "data.records": (
        "AggregationWithHeaders Change Record RecordContext RecordMetadata TaskId "
        "ValueAndTimestamp ValueTimestampHeaders VersionedRecord"
    ),
    "data.serdes": "Serde Serdes",
    "data.windows": (
        "EmitStrategy JoinWindows SessionWindows SlidingWindows TimeWindows UnlimitedWindows "
        "Window Windowed"
    ),
    "dsl.builder": "StreamsBuilder",
    "dsl.grouped": "CogroupedKStream KGroupedStream KGroupedTable",
    "dsl.settings": (
        "AutoOffsetReset Branched Consumed Grouped Joined Materialized Printed Produced "
        "Repartitioned StreamJoined Suppressed TableJoined"
    ),
    "dsl.stream": "KStream",
    "dsl.table": "GlobalKTable KTable",
    "errors": "SerializationException StreamsException TopologyException",
    "processors.processor": (
        "Processor ProcessorContext ProcessorWrapper PunctuationType ValueTransformer "
        "WrappedProcessor"
    ),
    "query.instances": "KeyQueryMetadata LagInfo StreamsMetadata",
    "query.state_queries": (
        "FailureReason KeyQuery MultiVersionedKeyQuery QueryResult RangeQuery StateQueryRequest "
        "StateQueryResult TimestampedKeyQuery TimestampedRangeQuery VersionedKeyQuery "
        "WindowKeyQuery WindowRangeQuery"
    ),
    "run.application": "Streams",
    "run.lifecycle": "ApplicationState",
    "stores.specs": "BuiltInDslStoreSuppliers DslStoreSuppliers Stores",
    "topology.topology": "Topology",
}
"""The public names of each module, which is imported at the first use of one."""
_MODULES = {
    name: f"ottla.streams.{module}" for module, names in _NAMES.items() for name in names.split()
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the module behind a public name on first use (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module 'ottla.streams' has no attribute {name!r}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names without importing them."""
    return sorted(__all__)
