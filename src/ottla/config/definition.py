"""Definition of tables of settings: one typed and documented class attribute for each setting.

Kafka: org.apache.kafka.common.config.ConfigDef and AbstractConfig. A table reads

    class LogSettings(ConfigTable):
        log_segment_bytes: Int = key(1 << 30, "Size of a segment.", at_least(1 << 20), HIGH)

The dotted name is the attribute name with `.` for `_`; the annotation gives the type, with `| None`
where null is valid. `parse` converts texts to typed values. What code declares while it runs, as
connectors do, is a `ConfigDefinitions`; each table has one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias

from ottla.config.checks import ListCheck, OneOf, OneOfAnyCase, Range
from ottla.config.problems import ConfigErrors, ConfigProblem, invalid
from ottla.config.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from typing import Protocol, Self

    class Recommender(Protocol):
        """Proposes values of a setting that depend on those of others."""

        def valid_values(self, name: str, parsed: Mapping[str, Any]) -> list[Any]:
            """Return the values to propose; ConfigErrors becomes an error of the setting."""

        def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
            """Whether the setting has a meaning among the others."""

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
    """The weight of a setting for most users."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Width(Enum):
    """The room that a form gives to a value."""

    NONE = "none"
    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"


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
    group: str | None = None
    """The heading of the setting in a form; `order` is its place below, -1 without one."""
    order: int = -1
    width: Width = Width.NONE
    display_name: str = ""
    """The label in a form."""
    dependents: tuple[str, ...] = ()
    """The settings whose valid values depend on this one."""
    recommender: Recommender | None = None

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
        value: Any = given.strip() if type(given) is str else given
        if value is None:
            return None
        try:
            value = _CONVERSIONS[self.type](value, self.type)
        except _WrongKindError as error:
            raise ConfigErrors([invalid(self.name, given, str(error))]) from None
        if isinstance(self.check, ListCheck) and isinstance(value, tuple):
            return tuple(dict.fromkeys(value))  # KIP-1161: duplicates are removed, not refused
        return value

    def problem(self, value: Any) -> ConfigProblem | None:
        """Check a converted value; None when it is valid."""
        check = self.check
        if check is None:
            return None
        try:
            reason = check.reason(self.name, value)
        except ConfigErrors as error:  # of a check that has a message of its own, as Connect's
            return error.problems[0]
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


@dataclass(slots=True)
class ParsedValues:
    """The result of parsing texts: converted values by dotted name, and all problems."""

    values: dict[str, Any] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)


@dataclass(slots=True)
class ConfigValue:
    """The outcome of a validation for one setting; without errors the value is valid."""

    name: str
    value: Any = None
    recommended_values: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True


class ConfigDefinitions:
    """Settings by dotted name, in the order of their definition."""

    def __init__(self, keys: Mapping[str, Key] | None = None) -> None:
        self.keys: dict[str, Key] = dict(keys or {})

    def define(
        self,
        name: str,
        type_: Type,
        default: Any = REQUIRED,
        doc: str = "",
        check: Check | None = None,
        *,
        importance: Importance = MEDIUM,
        **more: Any,
    ) -> Self:
        """Add a setting; `more` are a Key's further fields. ConfigErrors for an invalid default."""
        if name in self.keys:
            raise _error(name, f"Configuration {name} is defined twice.")
        more.setdefault("display_name", name)
        added = Key(
            default, doc, check, importance, more.pop("internal", False), name, type_, **more
        )
        if default is not REQUIRED:
            added = replace(added, default=added.convert(default))
            problem = added.problem(added.default)
            if problem is not None:
                raise ConfigErrors([problem])
        self.keys[name] = added
        return self

    @property
    def groups(self) -> list[str]:
        """The groups of the settings, in the order in which they were first named."""
        return list(dict.fromkeys(it.group for it in self.keys.values() if it.group is not None))

    def read(self, given: Mapping[str, Any]) -> ParsedValues:
        """Convert and check each given setting on its own; unknown names are left out."""
        reading = ParsedValues()
        for name, definition in self.keys.items():
            if name not in given:
                if definition.required:
                    reading.problems.append(_missing(name))
                continue
            try:
                value = definition.convert(given[name])
            except ConfigErrors as error:
                reading.problems.extend(error.problems)
                continue
            problem = definition.problem(value)
            if problem is None:
                reading.values[name] = value
            else:
                reading.problems.append(problem)
        return reading

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of each setting, given or default; ConfigErrors names every problem."""
        undefined = self._undefined()
        if undefined:
            text = "Some configurations in are referred in the dependents, but not defined: "
            raise _error(undefined[0], text + ",".join(undefined))
        reading = self.read(given)
        if reading.problems:
            raise ConfigErrors(reading.problems)
        return {name: reading.values.get(name, it.default) for name, it in self.keys.items()}

    def validate(self, given: Mapping[str, Any]) -> list[ConfigValue]:
        """Return the value, the errors and the recommended values of every setting.

        A setting is visited after those that it depends on, once for each of them, as in Kafka: a
        missing one with two parents has its error twice.
        """
        outcomes = {name: ConfigValue(name) for name in self.keys}
        for name in self._undefined():
            text = f"{name} is referred in the dependents, but not defined."
            outcomes[name] = ConfigValue(name, errors=[text], visible=False)
        parsed: dict[str, Any] = {}
        visits = list(self._visits())
        for definition in visits:
            outcome = outcomes[definition.name]
            outcome.value = parsed[definition.name] = _checked(definition, given, outcome.errors)
        for definition in visits:
            if definition.recommender is not None:
                _recommend(definition.recommender, outcomes[definition.name], parsed)
        return list(outcomes.values())

    def _undefined(self) -> list[str]:
        names = (name for definition in self.keys.values() for name in definition.dependents)
        return [name for name in dict.fromkeys(names) if name not in self.keys]

    def _visits(self) -> Iterator[Key]:
        """Yield settings without a parent, each followed by its dependents."""
        children = {name for definition in self.keys.values() for name in definition.dependents}
        waiting = [name for name in reversed(self.keys) if name not in children]
        while waiting:
            definition = self.keys.get(waiting.pop())
            if definition is not None:
                yield definition
                waiting += reversed(definition.dependents)


def _checked(definition: Key, given: Mapping[str, Any], errors: list[str]) -> Any:
    """Return a setting's value, None for an invalid text, and add to its errors."""
    value = None
    if definition.name in given:
        try:
            value = definition.convert(given[definition.name])
        except ConfigErrors as error:
            errors += map(str, error.problems)
    elif definition.required:
        errors.append(str(_missing(definition.name)))
    else:
        value = definition.default
    # Kafka checks the null of an invalid text, too: such a setting has two errors
    problem = definition.problem(value)
    if problem is not None:
        errors.append(str(problem))
    return value


def _recommend(recommender: Recommender, outcome: ConfigValue, parsed: Mapping[str, Any]) -> None:
    try:
        values = recommender.valid_values(outcome.name, parsed)
        earlier = outcome.recommended_values
        outcome.recommended_values = [it for it in values if not earlier or it in earlier]
        outcome.visible = recommender.visible(outcome.name, parsed)
    except ConfigErrors as error:
        outcome.errors += map(str, error.problems)


class ConfigTable:
    """A table of settings; an instance holds their values as attributes.

    A subclass adds its settings to those of its bases.
    """

    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()
    keys: ClassVar[dict[str, Key]] = definitions.keys
    """The definitions by dotted name, in the order of the tables."""
    _attributes: ClassVar[dict[str, str]] = {}
    """The attribute's name by the dotted one."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        merged: dict[str, Key] = {}
        for base in reversed(cls.__mro__[1:]):
            merged.update(base.__dict__.get("keys", {}))
        for attribute, annotation in get_annotations(cls).items():
            declared = cls.__dict__.get(attribute)
            if not isinstance(declared, Key):
                continue
            kind = _ANNOTATIONS[annotation.split("|")[0].strip()]
            default = declared.default
            name = attribute.replace("_", ".")
            merged[name] = replace(
                declared,
                name=name,
                type=kind,
                default=tuple(default) if isinstance(default, list) else default,
                display_name=name,
            )
        cls.definitions = ConfigDefinitions(merged)
        cls.keys = cls.definitions.keys
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
        reading = cls.definitions.read(given)
        if reading.problems:
            raise ConfigErrors(reading.problems)
        return cls(reading.values, given)

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


def _error(name: str, text: str) -> ConfigErrors:
    return ConfigErrors([ConfigProblem(name, None, text)])


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


# ---------------------------------------------------------------- reference

_HEAD: Final = "| setting | type | default | valid values | meaning |"


def reference(definitions: ConfigDefinitions, dynamic: Collection[str] | None = None) -> str:
    """Return the table of all settings that are not internal, by name.

    With `dynamic` a last column says which settings can change while the process runs.
    """
    public = (it for it in definitions.keys.values() if not it.internal)
    keys = sorted(public, key=lambda it: it.name)
    head = _HEAD if dynamic is None else f"{_HEAD} dynamic |"
    rows = [
        _row(key) + ("" if dynamic is None else f" {'yes' if key.name in dynamic else ''} |")
        for key in keys
    ]
    return table(head, rows)


def table(head: str, rows: Iterable[str]) -> str:
    """Return a table in Markdown, and an empty line."""
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rows, "", ""])


def _row(key: Key) -> str:
    default = "required" if key.required else "null" if key.default is None else ""
    default = default or code(key.text(key.default))
    return (
        f"| `{key.name}` | {key.type.name.lower()} | {default} | {_valid(key)} | {cell(key.doc)} |"
    )


def _valid(key: Key) -> str:
    """Return the valid values, as far as the type does not say them."""
    check = key.check
    if isinstance(check, OneOf | OneOfAnyCase):
        return ", ".join(code(word) for word in check.words)
    if isinstance(check, Range):
        smallest, largest = (
            code(bound if bound is None or isinstance(bound, int) else double_text(bound))
            for bound in (check.smallest, check.largest)
        )
        return f"at least {smallest}" if check.largest is None else f"{smallest} to {largest}"
    return ""


def cell(text: object) -> str:
    """Make a text fit into a table."""
    return str(text).replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")


def code(text: object) -> str:
    """Format a literal in a table; none for an empty one."""
    return f"`{cell(text)}`" if str(text) else ""
