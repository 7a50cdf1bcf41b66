"""A schema of Avro with `arg.properties`, compiled to a schema of Connect and a function of draws.

Kafka: Confluent's avro-random-generator, a part of whose annotations this reads.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.config.problems import nearest
from ottla.connect import data
from ottla.connect.data import BOUNDS, Schema, SchemaType, Struct
from ottla.connect.errors import DataException
from ottla.connect.generator.draws import ALPHANUMERIC, Draws, Pattern
from ottla.connect.generator.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Make = Callable[[Draws, int], Any]

_TEXT_MAX: Final = 64 << 10
_DEPTH_MAX: Final = 8
_FIELDS_MAX: Final = 200
_VALUES_MAX: Final = 10_000
"""Of all fields and elements of arrays in a record: a schema of few words cannot fill memory."""
_LENGTH_MAX: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS: Final = {
    "boolean": data.BOOLEAN,
    "int": data.INT32,
    "long": data.INT64,
    "float": data.FLOAT32,
    "double": data.FLOAT64,
    "string": data.STRING,
}
_PROPERTIES: Final = {
    "boolean": ("options", "odds"),
    "int": ("options", "range", "iteration"),
    "long": ("options", "range", "iteration"),
    "float": ("options", "range"),
    "double": ("options", "range"),
    "string": ("options", "regex", "words", "length"),
    "array": ("length",),
}
_FLOAT32_MAX: Final = 3.4028234663852886e38
_DEFAULT_LENGTH: Final = (8, 16)


class SchemaError(ValueError):
    """A schema that cannot be made use of; the text is one line with the field."""


@dataclass(frozen=True, slots=True)
class ValueGenerator:
    """What a schema says: the schema of values, and how a value is made of draws and a number."""

    schema: Schema
    make: Make
    values: int = 1
    """Fields and elements of a value at most."""


def read_schema(text: str) -> ValueGenerator:
    """Compile the JSON of a record's schema; SchemaError for anything else."""
    if len(text) > _TEXT_MAX:
        raise SchemaError(f"the schema has more than {_TEXT_MAX} characters")
    try:
        parsed = json.loads(text)
        json.dumps(parsed, ensure_ascii=False).encode()  # no text has half of a surrogate pair
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SchemaError("the schema is not an object with the type record")
    return compile_record(parsed)


def compile_record(of: Mapping[str, Any], where: str = "", depth: int = 1) -> ValueGenerator:
    """Compile a record's schema; `where` is the field that has it."""
    name, fields = of.get("name"), of.get("fields")
    shown = where or "the record"
    if not isinstance(name, str) or not _NAME.fullmatch(name.rpartition(".")[2]):
        raise SchemaError(f"{shown} has no valid name")
    if not isinstance(fields, list) or not 1 <= len(fields) <= _FIELDS_MAX:
        raise SchemaError(f"{shown} must have from 1 to {_FIELDS_MAX} fields")
    plans: dict[str, ValueGenerator] = {}
    for field in fields:
        label = field.get("name") if isinstance(field, dict) else None
        if not isinstance(label, str) or not _NAME.fullmatch(label):
            raise SchemaError(f"{shown} has a field without a valid name")
        if label in plans:
            raise SchemaError(f"{shown} has two fields {label}")
        plans[label] = _compile(field.get("type"), f"{where}.{label}" if where else label, depth)
    namespace = of.get("namespace")
    full = f"{namespace}.{name}" if isinstance(namespace, str) and "." not in name else name
    schema = data.struct_of(((it, plan.schema) for it, plan in plans.items()), name=full)
    makers = [(it, plan.make) for it, plan in plans.items()]

    def make(draws: Draws, number: int) -> Struct:
        return Struct(schema, **{it: maker(draws, number) for it, maker in makers})

    return ValueGenerator(
        schema, make, _counted(1 + sum(it.values for it in plans.values()), shown)
    )


def _compile(of: Any, where: str, depth: int) -> ValueGenerator:
    if depth > _DEPTH_MAX:
        raise SchemaError(f"{where}: more than {_DEPTH_MAX} levels")
    if isinstance(of, list):
        return _compile_optional(of, where, depth)
    if isinstance(of, str):
        of = {"type": of}
    kind = of.get("type") if isinstance(of, dict) else None
    if isinstance(kind, dict | list) and "arg.properties" not in of:
        return _compile(kind, where, depth + 1)
    if kind == "record":
        return compile_record(of, where, depth + 1)
    if kind == "enum":
        symbols = _options(of.get("symbols"), data.STRING, where, "symbols")
        return ValueGenerator(data.STRING, lambda draws, _: draws.choice(symbols))
    if not isinstance(kind, str) or kind not in _PROPERTIES:
        known = ", ".join([*_PROPERTIES, "enum", "record"])
        raise SchemaError(f"{where}: the type must be one of {known}, or a list of null and one")
    properties = _properties(of, kind, where)
    if kind == "array":
        return _compile_array(of, properties, where, depth)
    return _compile_scalar(kind, of.get("logicalType"), properties, where)


def _properties(of: Mapping[str, Any], kind: str, where: str) -> Mapping[str, Any]:
    """Return a type's annotations, of which one may be set."""
    properties = of.get("arg.properties", {})
    if not isinstance(properties, dict):
        raise SchemaError(f"{where}: arg.properties is not an object")
    known = _PROPERTIES[kind]
    for name in properties:
        if name not in known:
            meant = nearest(name, known)
            ending = f"did you mean {meant}?" if meant else f"{kind} has {', '.join(known)}"
            raise SchemaError(f"{where}: unknown property {name[:80]}; {ending}")
    if len(properties) > 1:
        raise SchemaError(f"{where}: only one of {', '.join(properties)} can be set")
    return properties


def _compile_optional(of: Sequence[Any], where: str, depth: int) -> ValueGenerator:
    others = [it for it in of if it != "null"]
    if len(of) != 2 or len(others) != 1:
        raise SchemaError(f"{where}: a list of types must have null and one other type")
    plan = _compile(others[0], where, depth + 1)
    schema, inner = plan.schema.as_optional(), plan.make

    def make(draws: Draws, number: int) -> Any:
        if not draws.below(2):
            return None
        value = inner(draws, number)
        if isinstance(value, Struct):  # its schema is that of the field, which is optional
            return Struct(schema, **{it.name: value[it.name] for it in schema.fields})
        return value

    return ValueGenerator(schema, make, plan.values)


def _compile_array(
    of: Mapping[str, Any], properties: Mapping[str, Any], where: str, depth: int
) -> ValueGenerator:
    plan = _compile(of.get("items"), f"{where}[]", depth + 1)
    least, most = _lengths(properties.get("length", {"min": 0, "max": 5}), where)
    inner = plan.make

    def make(draws: Draws, number: int) -> list[Any]:
        return [inner(draws, number) for _ in range(least + draws.below(most - least + 1))]

    return ValueGenerator(data.array(plan.schema), make, _counted(plan.values * most + 1, where))


def _counted(values: int, where: str) -> int:
    if values > _VALUES_MAX:
        raise SchemaError(f"{where}: a record would have more than {_VALUES_MAX} values")
    return values


def _compile_scalar(
    kind: str, logical: Any, properties: Mapping[str, Any], where: str
) -> ValueGenerator:
    schema = _SCALARS[kind]
    if "options" in properties:
        options = _options(properties["options"], schema, where, "options")
        plan = ValueGenerator(schema, lambda draws, _: draws.choice(options))
    elif kind == "string":
        plan = ValueGenerator(schema, _texts(properties, where))
    elif kind == "boolean":
        odds = properties.get("odds", 0.5)
        if not _is_number(odds) or not 0 <= odds <= 1:
            raise SchemaError(f"{where}: odds must be a number from 0 to 1")
        plan = ValueGenerator(schema, lambda draws, _: draws.fraction() < odds)
    elif kind in {"float", "double"}:
        most = _FLOAT32_MAX if kind == "float" else 1e300
        low, high = _range(properties.get("range", {"min": 0, "max": 1}), -most, most, where)
        plan = ValueGenerator(schema, lambda draws, _: low + draws.fraction() * (high - low))
    elif "iteration" in properties:
        plan = ValueGenerator(
            schema, _iteration(properties["iteration"], BOUNDS[schema.type], where)
        )
    else:
        bound = BOUNDS[schema.type]
        start, end = _range(properties.get("range", {}), -bound, bound, where, whole=True)
        plan = ValueGenerator(schema, lambda draws, _: start + draws.below(end - start))
    return plan if logical is None else _logical(plan, kind, logical, properties, where)


def _logical(
    plan: ValueGenerator, kind: str, logical: Any, properties: Mapping[str, Any], where: str
) -> ValueGenerator:
    convert: Callable[[int], Any]
    if (kind, logical) == ("long", "timestamp-millis"):
        schema, convert = data.TIMESTAMP, data.timestamp
    elif (kind, logical) == ("int", "date"):
        schema, convert = data.DATE, data.date
    else:
        raise SchemaError(f"{where}: logicalType must be timestamp-millis of long, or date of int")
    given = properties.get("range", {})
    limits = [*properties.get("options", ()), *(given.get(it) for it in ("min", "max"))]
    if "iteration" in properties:
        limits = [properties["iteration"].get(it) for it in ("start", "restart")]
    try:
        for limit in limits:
            convert(limit)
    except (DataException, TypeError):
        raise SchemaError(
            f"{where}: {logical} needs options, a range, or an iteration with restart, "
            "in the years 1 to 9999"
        ) from None
    inner = plan.make
    return ValueGenerator(schema, lambda draws, number: convert(inner(draws, number)))


def _options(options: Any, schema: Schema, where: str, name: str) -> Sequence[Any]:
    if not isinstance(options, list) or not options:
        raise SchemaError(f"{where}: {name} must be a list that is not empty")
    if schema.type in {SchemaType.FLOAT32, SchemaType.FLOAT64}:
        options = [float(it) if type(it) is int and abs(it) < 1 << 53 else it for it in options]
    for option in options:
        try:
            data.check_value(schema, option)
        except DataException:
            raise SchemaError(
                f"{where}: {json.dumps(option)[:80]} in {name} is no {schema.type.name.lower()}"
            ) from None
    return tuple(options)


def _texts(properties: Mapping[str, Any], where: str) -> Make:
    if "regex" in properties:
        if not isinstance(properties["regex"], str):
            raise SchemaError(f"{where}: regex is not a text")
        try:
            pattern = Pattern(properties["regex"])
        except ValueError as error:
            raise SchemaError(f"{where}: {error}") from None
        return lambda draws, _: pattern.draw(draws)
    if "words" in properties:
        words = WORDS.get(str(properties["words"]))
        if words is None:
            raise SchemaError(f"{where}: words must be one of {', '.join(WORDS)}")
        return lambda draws, _: draws.choice(words)
    least, most = _lengths(properties["length"], where) if properties else _DEFAULT_LENGTH
    return lambda draws, _: draws.text(ALPHANUMERIC, least + draws.below(most - least + 1))


def _lengths(length: Any, where: str) -> tuple[int, int]:
    """Return the least and the greatest length; `max` of the schema is not reached."""
    if type(length) is int and 0 <= length <= _LENGTH_MAX:
        return length, length
    if not isinstance(length, dict):
        raise SchemaError(
            f"{where}: length must be a number up to {_LENGTH_MAX}, or min and max of one"
        )
    least, end = _range({"min": 0, **length}, 0, _LENGTH_MAX + 1, where, whole=True)
    return least, end - 1


def _range(given: Any, low: Any, high: Any, where: str, *, whole: bool = False) -> tuple[Any, Any]:
    """Return the least value and the one that is not reached."""
    shown = "whole numbers" if whole else "numbers"
    if not isinstance(given, dict) or set(given) - {"min", "max"}:
        raise SchemaError(f"{where}: a range has min and max only")
    start, end = given.get("min", low), given.get("max", high)
    is_valid = all(type(it) is int if whole else _is_number(it) for it in (start, end))
    if not is_valid or not low <= start < end <= high:
        raise SchemaError(
            f"{where}: min and max must be {shown} from {low} to {high}, and min below max"
        )
    return start, end


def _iteration(given: Any, bound: int, where: str) -> Make:
    if not isinstance(given, dict) or set(given) - {"start", "step", "restart"}:
        raise SchemaError(f"{where}: an iteration has start, step and restart only")
    start: Any = given.get("start")
    step: Any = given.get("step", 1)
    end: Any = given.get("restart", -bound - 1 if type(step) is int and step < 0 else bound)
    is_valid = (
        all(type(it) is int for it in (start, step, end))
        and -bound <= start < bound
        and -bound - 1 <= end <= bound
        and (end - start) * step > 0
    )
    if not is_valid:
        raise SchemaError(
            f"{where}: start, step and restart must be whole numbers that the type has, and "
            "restart be ahead of start"
        )
    count = -((start - end) // step)  # rounded up
    return lambda _, number: start + step * (number % count)


def _is_number(value: Any) -> bool:
    # a large int has no float, but an order
    return type(value) is int or (type(value) is float and math.isfinite(value))
