"""Predicates: which records a transform is applied to.

Kafka: org.apache.kafka.connect.transforms.predicates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.config.checks import NON_EMPTY
from ottla.config.definition import ConfigDefinitions, Type
from ottla.connect import PLUGIN_VERSION
from ottla.connect.transforms import RegexCheck
from ottla.security.java_regex import compile_java

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.connect.records import ConnectRecord


class Predicate(ABC):
    """Answers a question about records."""

    version: ClassVar[str] = PLUGIN_VERSION
    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take settings; ConfigErrors for invalid ones."""
        self._use(self.definitions.parse(settings))

    def _use(self, values: Mapping[str, Any]) -> None:  # noqa: B027 - a branch a type
        """Take parsed settings."""

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Return whether the transform applies to the record."""


class HasHeaderKey(Predicate):
    """Records with a header of a name."""

    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions().define(
        "name", Type.STRING, doc="The header name.", check=NON_EMPTY
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        self._name = values["name"]

    def test(self, record: ConnectRecord) -> bool:
        """Look the name up."""
        return any(it.key == self._name for it in record.headers)


class RecordIsTombstone(Predicate):
    """Records without a value."""

    def test(self, record: ConnectRecord) -> bool:
        """Look at the value."""
        return record.value is None


class _PatternCheck(RegexCheck):
    """A regular expression that is not empty."""

    def reason(self, _name: str, value: object) -> str | None:
        """Look at its size, then compile it."""
        return NON_EMPTY.reason(_name, value) or super().reason(_name, value)


class TopicNameMatches(Predicate):
    """Records of topics whose whole name matches a regular expression."""

    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions().define(
        "pattern",
        Type.STRING,
        doc="A Java regular expression for matching against the name of a record's topic.",
        check=_PatternCheck(),
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        self._pattern = compile_java(values["pattern"])

    def test(self, record: ConnectRecord) -> bool:
        """Match the topic."""
        return self._pattern.fullmatch(record.topic) is not None
