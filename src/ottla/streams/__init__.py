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

_MODULES = {
    "AggregationWithHeaders": "ottla.streams.data.records",
    "ValueTimestampHeaders": "ottla.streams.data.records",
    "ApplicationState": "ottla.streams.run.lifecycle",
    "AutoOffsetReset": "ottla.streams.dsl.settings",
    "Branched": "ottla.streams.dsl.settings",
    "BuiltInDslStoreSuppliers": "ottla.streams.stores.specs",
    "Change": "ottla.streams.data.records",
    "CogroupedKStream": "ottla.streams.dsl.grouped",
    "Consumed": "ottla.streams.dsl.settings",
    "DslStoreSuppliers": "ottla.streams.stores.specs",
    "EmitStrategy": "ottla.streams.data.windows",
    "ErrorContext": "ottla.streams.config",
    "FailureReason": "ottla.streams.query.state_queries",
    "GlobalKTable": "ottla.streams.dsl.table",
    "Grouped": "ottla.streams.dsl.settings",
    "JoinWindows": "ottla.streams.data.windows",
    "Joined": "ottla.streams.dsl.settings",
    "KGroupedStream": "ottla.streams.dsl.grouped",
    "KGroupedTable": "ottla.streams.dsl.grouped",
    "KStream": "ottla.streams.dsl.stream",
    "KTable": "ottla.streams.dsl.table",
    "KeyQueryMetadata": "ottla.streams.query.instances",
    "LagInfo": "ottla.streams.query.instances",
    "StreamsMetadata": "ottla.streams.query.instances",
    "KeyQuery": "ottla.streams.query.state_queries",
    "Materialized": "ottla.streams.dsl.settings",
    "MultiVersionedKeyQuery": "ottla.streams.query.state_queries",
    "Printed": "ottla.streams.dsl.settings",
    "Processor": "ottla.streams.processors.processor",
    "ProcessorContext": "ottla.streams.processors.processor",
    "ProcessorWrapper": "ottla.streams.processors.processor",
    "Produced": "ottla.streams.dsl.settings",
    "PunctuationType": "ottla.streams.processors.processor",
    "QueryResult": "ottla.streams.query.state_queries",
    "RangeQuery": "ottla.streams.query.state_queries",
    "Record": "ottla.streams.data.records",
    "RecordContext": "ottla.streams.data.records",
    "RecordMetadata": "ottla.streams.data.records",
    "Repartitioned": "ottla.streams.dsl.settings",
    "Response": "ottla.streams.config",
    "Serde": "ottla.streams.data.serdes",
    "Serdes": "ottla.streams.data.serdes",
    "SerializationException": "ottla.streams.errors",
    "SessionWindows": "ottla.streams.data.windows",
    "SlidingWindows": "ottla.streams.data.windows",
    "StateQueryRequest": "ottla.streams.query.state_queries",
    "StateQueryResult": "ottla.streams.query.state_queries",
    "Stores": "ottla.streams.stores.specs",
    "StreamJoined": "ottla.streams.dsl.settings",
    "Streams": "ottla.streams.run.application",
    "StreamsBuilder": "ottla.streams.dsl.builder",
    "StreamsConfig": "ottla.streams.config",
    "StreamsException": "ottla.streams.errors",
    "Suppressed": "ottla.streams.dsl.settings",
    "TableJoined": "ottla.streams.dsl.settings",
    "TaskId": "ottla.streams.data.records",
    "TimeWindows": "ottla.streams.data.windows",
    "TimestampedKeyQuery": "ottla.streams.query.state_queries",
    "TimestampedRangeQuery": "ottla.streams.query.state_queries",
    "Topology": "ottla.streams.topology.topology",
    "TopologyException": "ottla.streams.errors",
    "UnlimitedWindows": "ottla.streams.data.windows",
    "ValueAndTimestamp": "ottla.streams.data.records",
    "ValueTransformer": "ottla.streams.processors.processor",
    "VersionedKeyQuery": "ottla.streams.query.state_queries",
    "VersionedRecord": "ottla.streams.data.records",
    "Window": "ottla.streams.data.windows",
    "WindowKeyQuery": "ottla.streams.query.state_queries",
    "WindowRangeQuery": "ottla.streams.query.state_queries",
    "Windowed": "ottla.streams.data.windows",
    "WrappedProcessor": "ottla.streams.processors.processor",
    "count_rows": "ottla.streams.columns.expression",
    "expr": "ottla.streams.columns.expression",
    "log_and_continue": "ottla.streams.config",
    "log_and_fail": "ottla.streams.config",
    "max_of": "ottla.streams.columns.expression",
    "min_of": "ottla.streams.columns.expression",
    "sum_of": "ottla.streams.columns.expression",
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
