"""The options of the source and the sink: names, values, validation.

Kafka: org.apache.spark.sql.kafka010.{KafkaSourceProvider, KafkaOffsetReader}'s options. Spark
passes options with lower-cased names, so they are looked up by lower-cased names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ottla.clients.settings import COMMON, CONSUMER, PRODUCER, read_settings
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.spark.hadoop_settings import PREFIXES
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.settings import SettingParser, ValidatedSettings


EQUAL: Final = "equal"
Limit: TypeAlias = tuple[int, int] | Literal["equal"]
"""Allowed range of partition counts, or EQUAL: all topics of the pattern must have the same."""


def check_partitions(partitions: Mapping[str, int], limits: Mapping[str, Limit]) -> None:
    """Raise KafkaError(INVALID_PARTITIONS) for a topic with too few or too many partitions."""
    for pattern, limit in limits.items():
        counts = {name: count for name, count in partitions.items() if re.fullmatch(pattern, name)}
        fewest = min(counts.values(), default=0)
        least, most = (fewest, fewest) if limit == EQUAL else limit
        for name, count in counts.items():
            if not least <= count <= most:
                raise KafkaError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"topic {name!r} has {_number(count, count)}, where the query may read topics "
                    f"of {_number(least, most)} (partitionLimits)",
                )


def _number(least: int, most: int) -> str:
    count = str(least) if least == most else f"{least} to {most}"
    return f"{count} partition" if least == most == 1 else f"{count} partitions"


READ_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "partitionLimits",
    "skipDeletedTopics",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
    "invalidTimestamps",
    "columns",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
WRITE_OPTIONS = (
    "topic",
    "includeHeaders",
    "exactlyOnce",
    "failOnDataLoss",
    "allowMissingDecision",
    "decisionTopic",
)
SPARK_OPTIONS = ("checkpointLocation", "path", "queryName", "outputMode", "truncate", "numRows")
"""Options that Spark itself adds to those of a source or sink."""
OWN_OPTIONS = tuple(dict.fromkeys((*READ_OPTIONS, *WRITE_OPTIONS)))
STREAM_LIMITS = (
    "partitionLimits",
    "skipDeletedTopics",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
_FREE = ("__", *PREFIXES)
"""The starts of names that are Spark's, or Hadoop's."""
SELECTORS = ("subscribe", "subscribePattern", "assign")
REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "offsets are kept in the query's checkpoint",
    "kafka.key.deserializer": "keys are read as bytes: cast the column instead",
    "kafka.value.deserializer": "values are read as bytes: cast the column instead",
    "kafka.key.serializer": "cast the column key to string or binary instead",
    "kafka.value.serializer": "cast the column value to string or binary instead",
    "kafka.interceptor.classes": "interceptors are Java classes",
    "kafka.transactional.id": "the sink names its transactions itself; see exactlyOnce",
    "kafka.transaction.two.phase.commit.enable": "the sink uses it where the broker allows it",
}
BASE_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
COLUMN_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}

StartPoint: TypeAlias = int | dict[TopicPartition, int]
"""A special timestamp for every partition, or an offset (or timestamp) for each."""


@dataclass(frozen=True)
class Selection:
    """The partitions to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The topics given by name; none for a pattern."""
        return self.topics or tuple(sorted({partition.topic for partition in self.partitions}))


@dataclass(frozen=True)
class Bound:
    """Where to start or end: offsets, or timestamps in ms since the epoch."""

    offsets: StartPoint
    is_timestamp: bool = False
    all_at_ms: int | None = None  # one timestamp for every partition
    is_of_group: bool = False  # the committed offsets of kafka.group.id


@dataclass(frozen=True)
class ReadOptions:
    """The validated options of a reader."""

    selection: Selection
    starting: Bound
    ending: Bound
    config: dict[str, str] = field(repr=False)
    columns: tuple[str, ...] = BASE_COLUMNS
    fall_back_to_latest: bool = False  # startingOffsetsByTimestampStrategy=latest
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    isolation_level: int = 0  # 1: read committed
    partition_max_bytes: int = 1_048_576
    check_crcs: bool = True
    api_timeout_ms: int = 60_000
    group_id: str = ""
    """The group that a streaming query commits its offsets for; "" for none."""
    partition_limits: dict[str, Limit] = field(default_factory=dict)
    """How many partitions topics may have, by patterns of their names."""
    null_timestamps: bool = False
    """Whether a timestamp that Spark cannot have is read as null, and is no error."""
    skip_deleted_topics: str = ""
    """A pattern of topics that may be deleted, or created again, while the query reads them."""


@dataclass(frozen=True)
class WriteOptions:
    """The validated options of a writer."""

    config: dict[str, str] = field(repr=False)
    topic: str | None = None
    acks: int = -1
    idempotent: bool = True
    compression: str = "none"
    compression_level: int | None = None
    batch_bytes: int = 524_288
    max_request_bytes: int = 1_048_576
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    api_timeout_ms: int = 60_000
    exactly_once: bool = True
    group_id: str = ""
    """The group that the query's source offsets are committed for; "" for the query's own."""
    transaction_timeout_ms: int = 900_000
    fail_on_data_loss: bool = True
    may_create_topics: bool = True
    """Whether brokers may make missing topics, as for Kafka's producers."""
    allows_missing_decision: bool = False
    decision_topic: str | None = None
    """The topic whose offsets have the decisions of a query without a source here; else `topic`."""
    hadoop: dict[str, str] = field(default_factory=dict, repr=False)
    """Hadoop's settings (`fs.…`, `dfs.…`), by which the sink reads the checkpoint."""
    first_answer_ms: int | None = None
    """How long a new write waits without any answer: `kafka.max.block.ms`, if it is given."""


class Options:
    """Spark's option map with typed access; collects all problems."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.values = {name.lower(): str(value) for name, value in given.items()}
        self.problems: list[str] = []
        self._check_names()

    def _check_names(self) -> None:
        known = {name.lower(): name for name in (*OWN_OPTIONS, *SPARK_OPTIONS)}
        settings = [f"kafka.{name}" for name in {**CONSUMER, **PRODUCER}]
        known |= dict(zip(settings, settings, strict=True))
        for name in sorted(self.values):
            if name in REFUSED:
                self.problems.append(f"{name} cannot be set here: {REFUSED[name]}")
            elif name not in known and not name.startswith(_FREE):
                self.problems.append(unknown_option(name, known))

    def text(self, name: str) -> str | None:
        """Return an option's value, None if it is not given."""
        return self.values.get(name.lower())

    def integer(self, name: str, default: Any = None, *, at_least: int = 1) -> Any:
        """Return a whole number, the default if the option is not given."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = at_least - 1
        if number < at_least:
            self.problems.append(f"{name}: {value!r} is not a whole number from {at_least} up")
            return default
        return number

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return true or false, the default if the option is not given."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            self.problems.append(f"{name}: {value!r} is neither true nor false")
        return value.lower() == "true"

    def settings(self, table: Mapping[str, SettingParser]) -> ValidatedSettings | None:
        """Return the kafka.* options, validated by a client's table."""
        values = {
            name.removeprefix("kafka."): value
            for name, value in self.values.items()
            if name.startswith("kafka.") and name.removeprefix("kafka.") in table
        }
        try:
            read = read_settings(table, values, {})
        except KafkaError as error:
            self.problems.append(with_option_names(error.message))
            return None
        if not read.bootstrap_servers:
            self.problems.append(
                "option kafka.bootstrap.servers is missing; for example localhost:9092"
            )
        return read

    def connection_config(self) -> dict[str, str]:
        """Return the settings of connections, by Kafka's names."""
        return {
            name.removeprefix("kafka."): value
            for name, value in self.values.items()
            if name.startswith("kafka.") and name.removeprefix("kafka.") in COMMON
        }

    def finish(self) -> None:
        """Raise KafkaError(INVALID_CONFIG) with all problems."""
        if self.problems:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(self.problems))


def with_option_names(text: str) -> str:
    """Return an error text about a client's setting with the name of Spark's option."""
    text = text.replace("correct bootstrap_servers", "correct kafka.bootstrap.servers")
    return re.sub(r"\bconfiguration (?=[\w.]+)", "option kafka.", text)


def unknown_option(name: str, known: Mapping[str, str]) -> str:
    """Return the message for an unknown option, with the nearest known one."""
    candidates = dict(known)
    if not name.startswith("kafka."):  # the prefix is missing, or the name is misspelled
        candidates |= {key.removeprefix("kafka."): full for key, full in known.items()}
    near = get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    hint = f"; did you mean {candidates[near[0]]!r}?" if near else ""
    return f"unknown option {name!r}{hint}"


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Validate the options of a reader; raises KafkaError(INVALID_CONFIG) with all problems."""
    options = Options(given)
    settings = options.settings(CONSUMER)
    if options.text("kafka.default.api.timeout.ms") is not None and settings is not None:
        api_timeout_ms = settings.default_api_timeout_ms
    else:
        api_timeout_ms = 60_000
    strategy = (options.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        options.problems.append("startingOffsetsByTimestampStrategy must be error or latest")
    invalid_timestamps = (options.text("invalidTimestamps") or "error").lower()
    if invalid_timestamps not in ("error", "null"):
        options.problems.append("invalidTimestamps must be error or null")
    selection = _selection(options)
    starting = _bound(options, "starting", LATEST_TIMESTAMP if streaming else EARLIEST_TIMESTAMP)
    ending = _bound(options, "ending", LATEST_TIMESTAMP)
    _check_bounds(options, starting, ending, streaming=streaming)
    result = ReadOptions(
        selection=selection,
        starting=starting,
        ending=ending,
        config=options.connection_config(),
        columns=_columns(options),
        fall_back_to_latest=strategy == "latest",
        max_offsets_per_trigger=options.integer("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=options.integer("maxBytesPerTrigger"),
        min_offsets_per_trigger=options.integer("minOffsetsPerTrigger"),
        max_trigger_delay_ms=_duration(options, "maxTriggerDelay", 15 * 60_000),
        min_partitions=options.integer("minPartitions"),
        max_records_per_partition=options.integer("maxRecordsPerPartition"),
        fail_on_data_loss=options.boolean("failOnDataLoss", default=True),
        null_timestamps=invalid_timestamps == "null",
        poll_timeout_ms=options.integer("kafkaConsumer.pollTimeoutMs", 120_000),
        isolation_level=int(getattr(settings, "isolation_level", "") == "read_committed"),
        partition_max_bytes=getattr(settings, "max_partition_fetch_bytes", 1_048_576),
        check_crcs=getattr(settings, "check_crcs", True),
        api_timeout_ms=api_timeout_ms,
        group_id=options.text("kafka.group.id") or "",
        partition_limits=_partition_limits(options),
        skip_deleted_topics=_pattern(options, "skipDeletedTopics") or "",
    )
    minimum, maximum = result.min_offsets_per_trigger, result.max_offsets_per_trigger
    if minimum is not None and maximum is not None and minimum > maximum:
        options.problems.append("minOffsetsPerTrigger is larger than maxOffsetsPerTrigger")
    options.finish()
    return result


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Validate the options of a writer; raises KafkaError(INVALID_CONFIG) with all problems."""
    options = Options(given)
    settings = options.settings(PRODUCER)
    exactly_once = options.boolean("exactlyOnce", default=True)
    fail_on_data_loss = options.boolean("failOnDataLoss", default=True)
    allows_missing_decision = options.boolean("allowMissingDecision", default=False)
    may_create_topics = options.boolean("kafka.allow.auto.create.topics", default=True)
    options.finish()
    assert settings is not None
    compression = settings.compression_type
    level = f"compression_{compression}_level"
    with_acks_all = settings.acks == -1
    if "enable.idempotence" in settings.given and settings.enable_idempotence and not with_acks_all:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "kafka.enable.idempotence needs kafka.acks=all")
    idempotent = settings.enable_idempotence and with_acks_all
    if exactly_once and not idempotent and options.text("exactlyOnce") is not None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "exactlyOnce needs kafka.acks=all and idempotence"
        )
    return WriteOptions(
        config=options.connection_config(),
        topic=options.text("topic"),
        decision_topic=options.text("decisionTopic") or options.text("topic"),
        acks=settings.acks,
        idempotent=idempotent,
        exactly_once=exactly_once and idempotent,
        group_id=options.text("kafka.group.id") or "",
        transaction_timeout_ms=settings.transaction_timeout_ms
        if "transaction.timeout.ms" in settings.given
        else 900_000,
        fail_on_data_loss=fail_on_data_loss,
        allows_missing_decision=allows_missing_decision,
        may_create_topics=may_create_topics,
        hadoop={name: one for name, one in options.values.items() if name.startswith(PREFIXES)},
        compression=compression,
        compression_level=getattr(settings, level)
        if level.replace("_", ".") in settings.given
        else None,
        batch_bytes=settings.batch_size if "batch.size" in settings.given else 524_288,
        max_request_bytes=settings.max_request_size,
        request_timeout_ms=settings.request_timeout_ms,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        api_timeout_ms=min(settings.max_block_ms, settings.delivery_timeout_ms),
        first_answer_ms=settings.max_block_ms if "max.block.ms" in settings.given else None,
    )


def _selection(options: Options) -> Selection:
    given = [name for name in SELECTORS if options.text(name) is not None]
    if len(given) != 1:
        options.problems.append(
            "give one of subscribe, subscribePattern and assign"
            + (f", not {' and '.join(given)}" if given else "; for example subscribe=flights")
        )
        return Selection()
    value = (options.text(given[0]) or "").strip()
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not topics:
            options.problems.append("subscribe names no topic")
        return Selection(topics=topics)
    if given[0] == "subscribePattern":
        return Selection(pattern=_pattern(options, "subscribePattern") or "")
    return Selection(partitions=_assignment(options, value))


def _pattern(options: Options, name: str) -> str | None:
    """Return the text of a regular expression."""
    value = options.text(name)
    try:
        re.compile(value or "")
    except re.error as error:
        options.problems.append(f"{name}: {value!r} is no pattern: {error}")
    return value


def _partition_limits(options: Options) -> dict[str, Limit]:
    value = options.text("partitionLimits")
    try:
        found = {
            re.compile(pattern).pattern: _limit(limit)
            for pattern, limit in json.loads(value or "{}").items()
        }
    except (AttributeError, TypeError, ValueError, re.error):
        options.problems.append(
            f'partitionLimits: {value!r} is not JSON such as {{"flights-.*": [1, 8]}}'
        )
        return {}
    options.problems += [
        f"partitionLimits: no topic has {limit[0]} to {limit[1]} partitions ({pattern!r}): "
        "write at least 1, then the same number or a greater one"
        for pattern, limit in found.items()
        if limit != EQUAL and not 1 <= limit[0] <= limit[1]
    ]
    return found


def _limit(given: Any) -> Limit:
    if given == EQUAL:
        return EQUAL
    least, most = given
    return _whole(least), _whole(most)


def _assignment(options: Options, value: str) -> tuple[TopicPartition, ...]:
    try:
        partitions = [
            TopicPartition(topic, _whole(number))
            for topic, numbers in json.loads(value).items()
            for number in _listed(numbers)
        ]
    except (AttributeError, TypeError, ValueError):
        partitions = []
    if not partitions:
        options.problems.append(f'assign: {value!r} is not JSON such as {{"flights": [0, 1]}}')
        return ()
    return tuple(sorted(set(partitions)))


def _bound(options: Options, side: str, default: int) -> Bound:
    """Parse a bound: one timestamp, timestamps by partition, or offsets."""
    at = options.integer(f"{side}Timestamp", at_least=0)
    if at is not None:
        return Bound({}, is_timestamp=True, all_at_ms=at)
    name = f"{side}OffsetsByTimestamp"
    if (value := options.text(name)) is not None:
        return Bound(_by_partition(options, name, value, lowest=0), is_timestamp=True)
    name = f"{side}Offsets"
    value = options.text(name)
    if value is None:
        return Bound(default)
    word = value.strip().lower()
    if word == "group" and side == "starting":
        if not options.text("kafka.group.id"):
            options.problems.append("startingOffsets: group needs kafka.group.id")
        return Bound(EARLIEST_TIMESTAMP, is_of_group=True)
    if word in ("earliest", "latest"):
        return Bound(EARLIEST_TIMESTAMP if word == "earliest" else LATEST_TIMESTAMP)
    return Bound(_by_partition(options, name, value, lowest=EARLIEST_TIMESTAMP))


def _by_partition(
    options: Options, name: str, value: str, *, lowest: int
) -> dict[TopicPartition, int]:
    try:
        table = {
            TopicPartition(topic, int(partition)): _whole(offset)
            for topic, offsets in json.loads(value).items()
            for partition, offset in offsets.items()
            if partition not in ("id", "from", "start")  # of progress reports and checkpoints
        }
    except (AttributeError, TypeError, ValueError):
        table = {}
    if not table or min(table.values()) < lowest:
        words = "" if "ByTimestamp" in name else "earliest, latest or "
        options.problems.append(
            f'{name}: {value!r} is not {words}JSON such as {{"flights": {{"0": 23, "1": 5}}}}'
        )
    return table


def _whole(number: Any) -> int:
    """Return an int64 from a JSON number or its text; raises TypeError, ValueError."""
    if isinstance(number, bool | float) or not -(1 << 63) <= int(number) < 1 << 63:
        raise ValueError(number)
    return int(number)


def _listed(numbers: Any) -> list[Any]:
    if not isinstance(numbers, list):
        raise TypeError(numbers)
    return numbers


def _check_bounds(options: Options, starting: Bound, ending: Bound, *, streaming: bool) -> None:
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if options.text(name) is not None:
                options.problems.append(f"{name} is for batch reads; a streaming query has no end")
        return
    if not starting.is_timestamp and LATEST_TIMESTAMP in _points(starting):
        options.problems.append("startingOffsets: latest is for streaming; a batch would be empty")
    if not ending.is_timestamp and EARLIEST_TIMESTAMP in _points(ending):
        options.problems.append("endingOffsets: earliest would make every batch empty")
    for name in STREAM_LIMITS:
        if options.text(name) is not None:
            options.problems.append(f"{name} is for streaming queries")


def _points(bound: Bound) -> Iterable[int]:
    return (bound.offsets,) if isinstance(bound.offsets, int) else bound.offsets.values()


def _columns(options: Options) -> tuple[str, ...]:
    default: tuple[str, ...] = BASE_COLUMNS
    if options.boolean("includeHeaders", default=False):
        default = (*BASE_COLUMNS, "headers")
    value = options.text("columns")
    if value is None:
        return default
    names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    for name in names:
        if name not in COLUMN_TYPES:
            near = get_close_matches(name, list(COLUMN_TYPES), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            options.problems.append(f"columns: there is no column {name!r}{hint}")
    return names or default


_UNITS_MS = {"ms": 1, "": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONG_UNITS = {"min": "m", "minutes": "m", "seconds": "s", "hours": "h", "days": "d"}


def _duration(options: Options, name: str, default: int) -> int:
    """Parse a duration as Spark does: a number in ms, or with units in words."""
    value = options.text(name)
    if value is None:
        return default
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
    unit = "" if found is None else found[2]
    unit = _LONG_UNITS.get(unit, _LONG_UNITS.get(f"{unit}s", unit))
    if found is None or unit not in _UNITS_MS:
        options.problems.append(f"{name}: {value!r} is not a duration such as 30s or 15m")
        return default
    return int(found[1]) * _UNITS_MS[unit]
