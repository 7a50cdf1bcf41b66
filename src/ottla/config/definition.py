"""Definition of tables of settings: one typed and documented class attribute for each setting.

Kafka: org.apache.kafka.common.config.ConfigDef and AbstractConfig. A table reads

    class LogSettings(ConfigTable):
        log_segment_bytes: Int = key(1 << 30, "Size of a segment.", at_least(1 << 20), HIGH)

The dotted name is the attribute name with `.` for `_`; the annotation gives the type, with `| None`
where null is valid. `parse` converts texts to typed values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias

from ottla.config.checks import ListCheck
from ottla.config.problems import ConfigErrors, ConfigProblem, invalid
from ottla.config.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from ottla.config.checks import Check


class Type(Enum):
    """The types of settings; the value is the type's number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """How much a setting matters to most users."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


Bool: TypeAlias = Annotated[bool, Type.BOOLEAN]
Text: TypeAlias = Annotated[str, Type.STRING]
Int: TypeAlias = Annotated[int, Type.INT]
Short: TypeAlias = Annotated[int, Type.SHORT]
Long: TypeAlias = Annotated[int, Type.LONG]
Double: TypeAlias = Annotated[float, Type.DOUBLE]
Names: TypeAlias = Annotated[tuple[str, ...], Type.LIST]
ClassName: TypeAlias = Annotated[str, Type.CLASS]

_ANNOTATIONS: Final = {
    "Bool": Type.BOOLEAN,
    "Text": Type.STRING,
    "Int": Type.INT,
    "Short": Type.SHORT,
    "Long": Type.LONG,
    "Double": Type.DOUBLE,
    "Names": Type.LIST,
    "ClassName": Type.CLASS,
    "Secret": Type.PASSWORD,
}


class _Required:
    """Marks a setting that has no default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
MAX_INT: Final = (1 << 31) - 1
MAX_LONG: Final = (1 << 63) - 1
_BITS: Final = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(
    r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)[fFdD]?",
)
_COMMA = re.compile(r"\s*,\s*")


@dataclass(frozen=True, slots=True)
class Key:
    """One setting's definition."""

    default: Any
    doc: str
    check: Check | None
    importance: Importance
    internal: bool
    name: str = ""
    type: Type = Type.STRING

    @property
    def attribute(self) -> str:
        """The attribute name of the value."""
        return self.name.replace(".", "_")

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is REQUIRED

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is Type.PASSWORD

    def convert(self, given: object) -> Any:
        """Convert a given value to the type of the setting; ConfigErrors when it is invalid."""
        value = given.strip() if type(given) is str else given
        if value is None:
            return None
        try:
            return _CONVERSIONS[self.type](value, self.type)
        except _WrongKindError as error:
            raise ConfigErrors([invalid(self.name, given, str(error))]) from None

    def problem(self, value: Any) -> ConfigProblem | None:
        """Check a converted value; None when it is valid."""
        check = self.check
        if check is None:
            return None
        reason = check.reason(self.name, value)
        if reason is None:
            return None
        if isinstance(check, ListCheck):
            return ConfigProblem(self.name, self.text(value), reason)
        shown = f"[{', '.join(value)}]" if self.type is Type.LIST else self.text(value)
        return invalid(self.name, shown, reason)

    def text(self, value: Any) -> str | None:
        """Format a value as Kafka does in files and responses; secrets are not hidden."""
        if value is None:
            return None
        if self.type is Type.BOOLEAN:
            return "true" if value else "false"
        if self.type is Type.LIST:
            return ",".join(str(entry) for entry in value)
        if isinstance(value, Secret):
            return value.reveal()
        return double_text(value) if isinstance(value, float) else str(value)


def key(
    default: Any,
    doc: str,
    check: Check | None = None,
    importance: Importance = MEDIUM,
    *,
    internal: bool = False,
) -> Any:
    """Define a setting in a table's body; its annotation gives the type."""
    return Key(default, doc, check, importance, internal)


class Given(dict[str, Any]):
    """The given texts by name; `repr` shows the names only, because some values are secrets."""

    def __repr__(self) -> str:
        return f"Given({', '.join(self)})"


class ConfigTable:
    """A table of settings; an instance holds their values as attributes.

    A subclass adds its settings to those of its bases. `keys` maps dotted names to definitions
    in the order of the tables.
    """

    keys: ClassVar[dict[str, Key]] = {}
    _attributes: ClassVar[dict[str, str]] = {}
    """The attribute's name by the dotted one."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        merged: dict[str, Key] = {}
        for base in reversed(cls.__mro__[1:]):
            merged.update(base.__dict__.get("keys", {}))
        for attribute, annotation in get_annotations(cls).items():
            found = cls.__dict__.get(attribute)
            if not isinstance(found, Key):
                continue
            kind = _ANNOTATIONS[annotation.split("|")[0].strip()]
            default = tuple(found.default) if isinstance(found.default, list) else found.default
            name = attribute.replace("_", ".")
            merged[name] = replace(found, name=name, type=kind, default=default)
        cls.keys = merged
        cls._attributes = {name: definition.attribute for name, definition in merged.items()}

    def __init__(self, values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """Take converted values by dotted name (others are defaults), and the given texts."""
        self.given: dict[str, Any] = Given(given)
        own, attributes = self.__dict__, self._attributes
        for name, definition in self.keys.items():
            own[attributes[name]] = values.get(name, definition.default)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Parse and check all settings; ConfigErrors names every invalid one."""
        reading = cls.read(given)
        if reading.problems:
            raise ConfigErrors(reading.problems)
        return cls(reading.values, given)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> ParsedValues:
        """Convert and check each setting on its own; unknown names are left out."""
        reading = ParsedValues()
        for name, definition in cls.keys.items():
            if name in given:
                _read_one(definition, given[name], reading)
            elif definition.required:
                reading.problems.append(_missing(name))
        return reading

    @classmethod
    def unknown(cls, given: Iterable[str]) -> list[str]:
        """List the names that this table does not have."""
        return [name for name in given if name not in cls.keys]

    def value(self, name: str) -> Any:
        """Return a value by its dotted name; KeyError when there is no such setting."""
        return self.__dict__[self._attributes[name]]

    def text(self, name: str) -> str | None:
        """Return a value as text, formatted as in Kafka; secrets are not hidden."""
        return self.keys[name].text(self.value(name))


@dataclass(slots=True)
class ParsedValues:
    """The result of parsing texts: converted values by dotted name, and all problems."""

    values: dict[str, Any] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)


def _read_one(definition: Key, given: object, reading: ParsedValues) -> None:
    try:
        value = definition.convert(given)
    except ConfigErrors as error:
        reading.problems.extend(error.problems)
        return
    if isinstance(definition.check, ListCheck) and value is not None:
        value = tuple(dict.fromkeys(value))  # KIP-1161: duplicates are removed, not refused
    problem = definition.problem(value)
    if problem is not None:
        reading.problems.append(problem)
        return
    reading.values[definition.name] = value


def double_text(value: float) -> str:
    """Format a number as Java does: 0.05, 1.0, 1.0E7."""
    if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124 - NaN
        return repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"


def _missing(name: str) -> ConfigProblem:
    message = f'Missing required configuration "{name}" which has no default value.'
    return ConfigProblem(name, None, message)


class _WrongKindError(Exception):
    """A text that cannot be parsed as the type of the setting."""


def _to_bool(value: object, _kind: Type) -> bool:
    if isinstance(value, bool):
        return value
    lowered = value.lower() if isinstance(value, str) else None
    if lowered not in {"true", "false"}:
        raise _WrongKindError("Expected value to be either true or false")
    return lowered == "true"


def _to_text(value: object, _kind: Type) -> str:
    if not isinstance(value, str):
        what = type(value).__name__
        raise _WrongKindError(f"Expected value to be a string, but it was a {what}")
    return value


def _to_integer(value: object, kind: Type) -> int:
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and len(value) <= 40 and _INTEGER.fullmatch(value):
        number = int(value)
    limit = 1 << (_BITS[kind] - 1)
    if number is None or not -limit <= number < limit:
        raise _WrongKindError(f"Not a number of type {kind.name}")
    return number


def _to_double(value: object, _kind: Type) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str) or not _FLOAT.fullmatch(value):
        raise _WrongKindError("Not a number of type DOUBLE")
    return float(value.rstrip("fFdD"))


def _to_names(value: object, _kind: Type) -> tuple[str, ...]:
    if isinstance(value, list | tuple):
        return tuple(value)
    if not isinstance(value, str):
        raise _WrongKindError("Expected a comma separated list.")
    return tuple(_COMMA.split(value)) if value else ()


def _to_class(value: object, _kind: Type) -> object:
    return value


def _to_secret(value: object, _kind: Type) -> Secret:
    return value if isinstance(value, Secret) else Secret(str(value))


_CONVERSIONS: Final = {
    Type.BOOLEAN: _to_bool,
    Type.STRING: _to_text,
    Type.INT: _to_integer,
    Type.SHORT: _to_integer,
    Type.LONG: _to_integer,
    Type.DOUBLE: _to_double,
    Type.LIST: _to_names,
    Type.CLASS: _to_class,
    Type.PASSWORD: _to_secret,
}
