"""The steps between a task and its topics: transforms with their predicates, and converters.

Kafka: org.apache.kafka.connect.runtime.{TransformationChain, TransformationStage}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.connect.data import Header
from ottla.connect.errors import ConnectException
from ottla.connect.records import SinkRecord
from ottla.connect.runtime.tolerance import ErrorStage
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.connect.converters import Converter, HeaderConverter
    from ottla.connect.plugins import Plugin, Plugins
    from ottla.connect.predicates import Predicate
    from ottla.connect.records import ConnectRecord, SourceRecord
    from ottla.connect.runtime.tolerance import ErrorHandler
    from ottla.connect.transforms import Transformation

log = logging.getLogger("ottla.connect")


def below(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the settings with a prefix, without it."""
    cut = len(prefix)
    return {name[cut:]: value for name, value in config.items() if name.startswith(prefix)}


def converter_plugin(
    part: str, plugins: Plugins, connector: Mapping[str, str], worker: Mapping[str, str]
) -> tuple[Plugin, Mapping[str, str]]:
    """Return the converter of a record's key, value or header, and the settings that name it."""
    name, type_, default = f"{part}.converter", "converter", ""
    if part == "header":
        type_, default = "header_converter", "SimpleHeaderConverter"
    config = connector if name in connector else worker
    return plugins.find(config.get(name, default), type_), config


class Converters(NamedTuple):
    """The converters of a task."""

    key: Converter
    value: Converter
    header: HeaderConverter

    @classmethod
    def of(
        cls, plugins: Plugins, connector: Mapping[str, str], worker: Mapping[str, str]
    ) -> Converters:
        """Make them; a connector's settings of one count only if it names its class."""

        def configured(part: str) -> tuple[Any, dict[str, str]]:
            plugin, config = converter_plugin(part, plugins, connector, worker)
            return plugin.create(), below(config, f"{part}.converter.")

        key, key_settings = configured("key")
        key.configure(key_settings, is_key=True)
        value, value_settings = configured("value")
        value.configure(value_settings, is_key=False)
        header, header_settings = configured("header")
        header.configure_header(header_settings)
        return cls(key, value, header)


class TransformStep(NamedTuple):
    """A transform, and the records that it is for."""

    transform: Transformation
    predicate: Predicate | None
    negate: bool


def names_of(text: str | None) -> list[str]:
    """Split a list of names."""
    return [it.strip() for it in (text or "").split(",") if it.strip()]


def steps_of(plugins: Plugins, config: Mapping[str, str]) -> list[TransformStep]:
    """Make the transforms of a connector."""
    predicates = {}
    for name in names_of(config.get("predicates")):
        predicate = plugins.find(config.get(f"predicates.{name}.type", ""), "predicate").create()
        predicate.configure(below(config, f"predicates.{name}."))
        predicates[name] = predicate
    steps = []
    for name in names_of(config.get("transforms")):
        prefix = f"transforms.{name}."
        transform = plugins.find(config.get(f"{prefix}type", ""), "transformation").create()
        transform.configure(below(config, prefix))
        negate = config.get(f"{prefix}negate", "false").strip().lower() == "true"
        alias = config.get(f"{prefix}predicate", "").strip()
        if alias and alias not in predicates:  # without it the step would be for all records
            raise ConnectException(f"{prefix}predicate: there is no predicate {alias}")
        steps.append(TransformStep(transform, predicates.get(alias), negate))
    return steps


class Pipeline:
    """Transforms and converts the records of one task, under its tolerance of errors."""

    def __init__(
        self, steps: list[TransformStep], converters: Converters, handler: ErrorHandler
    ) -> None:
        self._steps, self._converters, self._handler = steps, converters, handler

    def transform(self, record: ConnectRecord) -> ConnectRecord | None:
        """Apply the transforms; None for a record that was dropped or failed."""
        current: ConnectRecord | None = record
        for step in self._steps:
            if current is None:
                return None
            current = self._handler.run(
                ErrorStage.TRANSFORMATION, step.transform, _application(step, current)
            )
        return current

    def to_topic(self, record: SourceRecord | ConnectRecord) -> tuple[Any, ...] | None:
        """Return value, key and headers as bytes; None for a record that failed."""
        run, topic = self._handler.run, record.topic
        key, value, header = self._converters
        headers = run(
            ErrorStage.HEADER_CONVERTER,
            header,
            lambda: [
                (it.key, header.from_connect_header(topic, it.key, it.schema, it.value))
                for it in record.headers
            ],
        )
        if self._handler.has_failed:
            return None
        key_bytes = run(
            ErrorStage.KEY_CONVERTER,
            key,
            lambda: key.from_connect(topic, record.headers, record.key_schema, record.key),
        )
        if self._handler.has_failed:
            return None
        value_bytes = run(
            ErrorStage.VALUE_CONVERTER,
            value,
            lambda: value.from_connect(topic, record.headers, record.value_schema, record.value),
        )
        return None if self._handler.has_failed else (value_bytes, key_bytes, headers)

    def from_topic(self, consumed: ConsumerRecord) -> ConnectRecord | None:
        """Return the transformed record; None for one that was dropped or failed."""
        self._handler.consumed = consumed
        run, topic = self._handler.run, consumed.topic
        key, value, header = self._converters
        raw = tuple(Header(name, None, data) for name, data in consumed.headers)
        read_key = run(
            ErrorStage.KEY_CONVERTER, key, lambda: key.to_connect(topic, raw, consumed.key)
        )
        if read_key is None:
            return None
        read_value = run(
            ErrorStage.VALUE_CONVERTER, value, lambda: value.to_connect(topic, raw, consumed.value)
        )
        if read_value is None:
            return None
        headers = run(
            ErrorStage.HEADER_CONVERTER,
            header,
            lambda: tuple(
                Header(name, *header.to_connect_header(topic, name, data))
                for name, data in consumed.headers
            ),
        )
        if headers is None:
            return None
        record = SinkRecord(
            topic,
            consumed.partition,
            *read_key,
            *read_value,
            consumed.timestamp if consumed.timestamp >= 0 else None,
            headers,
            consumed.offset,
            0,
            TopicPartition(topic, consumed.partition),
            consumed,
        )
        return self.transform(record)

    def close(self) -> None:
        """Release the transforms; failures are logged only."""
        for step in self._steps:
            try:
                step.transform.close()
            except Exception:
                log.exception("closing %s failed", type(step.transform).__qualname__)


def _application(step: TransformStep, record: ConnectRecord) -> Callable[[], ConnectRecord | None]:
    transform, predicate, negate = step

    def apply() -> ConnectRecord | None:
        if predicate is not None and predicate.test(record) == negate:
            return record
        return transform.apply(record)

    return apply
