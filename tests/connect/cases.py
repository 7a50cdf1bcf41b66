"""Random records, and settings of all transforms, predicates and converters, as cases.

A case is a dict that ConnectCases.java reads; `answer` is ours, `normal` makes answers comparable.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.converters.json import JsonConverter
from ottla.connect.data import (
    BOOLEAN,
    BOUNDS,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Header,
    Schema,
    SchemaAndValue,
    SchemaType,
    Struct,
    array,
    decimal,
    mapping,
    struct_of,
    time_of_day,
)
from ottla.connect.plugins import PLUGINS, Plugin
from ottla.connect.records import SinkRecord, SourceRecord
from ottla.connect.values import float32

if TYPE_CHECKING:
    import random

Case = dict[str, Any]
NAMES: Final = "abcdef"
_SIMPLE: Final = (
    *(INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING, BYTES),
    *(DATE, TIME, TIMESTAMP, decimal(2)),
)
_TEXTS: Final = (
    *("", "x", "5", "-7", "3.5", "true", "FALSE", "null", "2020-02-29", "12:30:00.250Z", "NaN"),
    *(
        "2020-02-29T12:30:00.250Z",
        "[1,2]",
        '{"a":1}',
        "é€😀",
        'say "hi" \\',
        "\t\n",
        "1e3",
        "999999999999",
    ),
    *("+4", " 12 ", "1f", "0x10", "2020-13-45", "20200229", "12.50", "-0.1", "9223372036854775808"),
)


def random_schema(rng: random.Random, depth: int = 2) -> Schema:
    """Return a schema of any type, structs and lists inside of it down to a depth."""
    choice = rng.random()
    if depth and choice < 0.15:
        schema = random_struct(rng, depth - 1)
    elif depth and choice < 0.25:
        schema = array(random_schema(rng, depth - 1))
    elif depth and choice < 0.32:
        schema = mapping(rng.choice((STRING, INT32)), random_schema(rng, depth - 1))
    else:
        schema = rng.choice(_SIMPLE)
        if schema.name is None and rng.random() < 0.1:
            schema = replace(schema, name="n", version=2, doc="some doc", parameters={"p": "1"})
    if rng.random() < 0.4:
        schema = schema.as_optional()
    if schema.type not in {SchemaType.STRUCT, SchemaType.MAP} and rng.random() < 0.3:
        schema = schema.with_default(random_value(rng, replace(schema, optional=False)))
    return schema


def random_struct(rng: random.Random, depth: int = 2) -> Schema:
    """Return a schema of a struct with one to six fields."""
    names = rng.sample(NAMES, rng.randint(1, len(NAMES)))
    made = struct_of([(name, random_schema(rng, depth)) for name in names])
    if rng.random() < 0.3:
        made = replace(made, name="some.Name", version=rng.randint(1, 3), doc="doc")
    return made


def random_value(rng: random.Random, schema: Schema) -> Any:  # noqa: PLR0911 - a branch a type
    """Return a value that fits a schema."""
    if schema.optional and rng.random() < 0.3:
        return None
    kind = schema.type
    if schema.name == DATE.name:
        return dt.date(1970, 1, 1) + dt.timedelta(days=rng.randint(-3000, 40000))
    if schema.name == TIME.name:
        return time_of_day(rng.randrange(86_400_000))
    if schema.name == TIMESTAMP.name:
        at_ms = rng.choice((0, 86_400_000, rng.randint(-(10**11), 10**13)))
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=at_ms)
    if schema.name == decimal(2).name:
        return Decimal(rng.randint(-(10**9), 10**9)).scaleb(-2)
    if kind is SchemaType.STRUCT:
        made = Struct(schema)
        for field in schema.fields:
            value = random_value(rng, field.schema)
            made.values[field.index] = value
        return made
    if kind is SchemaType.ARRAY:
        assert schema.value_schema is not None
        return [random_value(rng, schema.value_schema) for _ in range(rng.randint(0, 3))]
    if kind is SchemaType.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        return {
            random_value(rng, schema.key_schema): random_value(rng, schema.value_schema)
            for _ in range(rng.randint(0, 3))
        }
    return _random_simple(rng, kind)


def _random_simple(rng: random.Random, kind: SchemaType) -> Any:
    bound = BOUNDS.get(kind)
    if bound is not None:
        return rng.choice((0, 1, -1, bound - 1, -bound, rng.randrange(-bound, bound)))
    if kind is SchemaType.BOOLEAN:
        return rng.random() < 0.5
    if kind is SchemaType.BYTES:
        return rng.randbytes(rng.randint(0, 5))
    if kind is SchemaType.STRING:
        return rng.choice(_TEXTS)
    numbers = (0.0, 0.5, -1.5, 300.25, 70_000.0, 1e6, 3e9, -1e10, 1e20, 0.1, 2.75, -0.125)
    number = rng.choice(numbers)
    return float32(number) if kind is SchemaType.FLOAT32 else number


def random_plain(rng: random.Random, depth: int = 2) -> Any:
    """Return a value without a schema."""
    choice = rng.random()
    if depth and choice < 0.15:
        return [random_plain(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    if depth and choice < 0.3:
        return random_map(rng, depth - 1)
    whole = rng.choice((0, 1, -1, 127, 300, 70_000, 1_600_000_000_000, -(1 << 63)))
    return rng.choice((None, True, False, whole, 0.5, -1.5, 1e10, rng.choice(_TEXTS)))


def random_map(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    """Return a dict with some of the names of fields."""
    return {name: random_plain(rng, depth) for name in rng.sample(NAMES, rng.randint(0, 5))}


def _converter(setting: str) -> JsonConverter:
    made = JsonConverter()
    made.configure({setting: "false"}, is_key=False)
    return made


_WITH: Final = _converter("replace.null.with.default")
_WITHOUT: Final = _converter("schemas.enable")


def text_of(schema: Schema | None, value: Any) -> str | None:
    """Return a value as the JSON of a case."""
    data = (_WITHOUT if schema is None else _WITH).from_connect("t", (), schema, value)
    return None if data is None else data.decode()


def _shown(schema: Schema | None, value: Any) -> str | None:
    data = _WITH.from_connect("t", (), schema, value)
    return None if data is None else data.decode()


def read(text: str | None) -> SchemaAndValue:
    """Return the value of a case."""
    if text is None:
        return SchemaAndValue(None, None)
    converter = _WITH if text.startswith('{"schema":') else _WITHOUT
    return converter.to_connect("t", (), text.encode())


def random_part(rng: random.Random) -> str | None:
    """Return a key or a value: mostly a struct or a dict, sometimes anything or nothing."""
    choice = rng.random()
    if choice < 0.05:
        return None
    if choice < 0.35:
        return text_of(None, random_map(rng))
    if choice < 0.42:
        return text_of(None, random_plain(rng))
    schema = random_struct(rng) if choice < 0.85 else random_schema(rng)
    value = random_value(rng, schema)
    if value is None and schema.default is not None:
        schema = replace(schema, default=None)
    return text_of(schema, value)


# ---------------------------------------------------------------- settings

_TYPES: Final = (
    *("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"),
    *("INT8", " int32 ", "bytes", "nothing"),
)
_FORMATS: Final = (
    *(
        "yyyy-MM-dd",
        "yyyyMMdd",
        "HH:mm:ss.SSS'Z'",
        "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
        "EEE, d MMM yyyy",
    ),
    *(
        "yy/M/d h:mm a",
        "D yyyy G",
        "MMMM d, yyyy",
        "k:m:s",
        "''yyyy''",
        "yyyy-MM-dd HH:mm Z",
        "X u",
    ),
)


def _names(rng: random.Random) -> str:
    return ",".join(rng.sample(NAMES, rng.randint(1, 3)))


def _settings(rng: random.Random, name: str) -> dict[str, str]:  # noqa: C901, PLR0911 - a branch a type
    """Return random settings, some of them invalid."""
    defaults = (
        {} if rng.random() < 0.5 else {"replace.null.with.default": rng.choice(("true", "false"))}
    )
    one = rng.choice(NAMES)
    if name == "Cast":
        pairs = ",".join(
            f"{it}:{rng.choice(_TYPES[:9])}" for it in rng.sample(NAMES, rng.randint(1, 4))
        )
        odd = ("a:int8,string", "a:b:c", "", "a:map")
        spec = pairs if rng.random() < 0.7 else rng.choice((*_TYPES, *odd))
        return {"spec": spec, **defaults}
    if name == "ExtractField":
        path = rng.choice((one, "a.b", "a.b.c", "`a`.b", "`a", "b.", "a.`b`"))
        version = rng.choice(("V1", "V2", "v2"))
        return {"field": path, "field.syntax.version": version, **defaults}
    if name == "Flatten":
        return {"delimiter": rng.choice("._")} if rng.random() < 0.7 else {}
    if name == "HeaderFrom":
        names = rng.sample(NAMES, rng.randint(1, 2))
        headers = ",".join(f"h{it}" for it in names)
        operation = rng.choice(("move", "copy", "copy", "drop"))
        return {"fields": ",".join(names), "headers": headers, "operation": operation, **defaults}
    if name == "HoistField":
        return {"field": one}
    if name == "InsertField":
        kinds = rng.sample(
            ("topic", "partition", "offset", "timestamp", "static"), rng.randint(0, 3)
        )
        found = {f"{it}.field": f"{it[0]}{it}{rng.choice(('', '!', '?'))}" for it in kinds}
        value = {"static.value": "fixed"} if rng.random() < 0.8 else {}
        return {**found, **value, **defaults}
    if name == "MaskField":
        replacement = rng.choice(("", "7", "x", "1.5", "300", "-1e3"))
        return {
            "fields": _names(rng),
            **({"replacement": replacement} if rng.random() < 0.5 else {}),
            **defaults,
        }
    if name == "ReplaceField":
        found = {"renames": rng.choice(("a:z", "a:b,b:a", "c:y,d:x", "a", "a:b:c"))}
        kept = {key: of for key, of in found.items() if rng.random() < 0.6}
        kept |= {key: _names(rng) for key in ("include", "exclude") if rng.random() < 0.4}
        return {**kept, **defaults}
    if name == "SetSchemaMetadata":
        found = {"schema.name": "other", "schema.version": rng.choice(("4", "x"))}
        return {**{key: of for key, of in found.items() if rng.random() < 0.6}, **defaults}
    if name == "TimestampConverter":
        target = rng.choice(("string", "unix", "Date", "Time", "Timestamp"))
        found = {"format": rng.choice(_FORMATS)} if rng.random() < 0.8 else {}
        if rng.random() < 0.8:
            found["field"] = one
        if rng.random() < 0.4:
            units = ("seconds", "milliseconds", "microseconds", "nanoseconds", "days")
            found["unix.precision"] = rng.choice(units)
        return {"target.type": target, **found, **defaults}
    return _other_settings(rng, name, defaults)


def _other_settings(rng: random.Random, name: str, defaults: dict[str, str]) -> dict[str, str]:  # noqa: PLR0911 - a branch a type
    if name == "ValueToKey":
        return {"fields": _names(rng), **defaults}
    if name == "DropHeaders":
        return {"headers": rng.choice(("h1", "h2,h3", ""))}
    if name == "InsertHeader":
        return {"header": "h9", "value.literal": rng.choice(_TEXTS)}
    if name == "RegexRouter":
        regex = rng.choice((".*", "(t)(.*)", "x.*", "t-(?<n>[a-z]+)", r"\w+-\w+"))
        return {"regex": regex, "replacement": rng.choice(("new", "$1-x", "${n}", r"\$", "a$0"))}
    if name == "TimestampRouter":
        return {
            "topic.format": rng.choice(("${topic}-${timestamp}", "x_${timestamp}", "${topic}")),
            "timestamp.format": rng.choice(_FORMATS),
        }
    if name == "HasHeaderKey":
        return {"name": rng.choice(("h1", "h2", ""))}
    if name == "TopicNameMatches":
        return {"pattern": rng.choice(("t.*", "x", "", "t-[a-z]+"))}
    return {}


def random_case(rng: random.Random, plugin: Plugin) -> Case:
    """Return a case of a transform or of a predicate."""
    name = plugin.java_class.rpartition(".")[2].partition("$")[0]
    at_ms = rng.choice((None, 0, 1_600_000_000_123, rng.randint(0, 4 * 10**12)))
    return {
        "kind": plugin.type,
        "class": plugin.java_class,
        "config": _settings(rng, name),
        "source": rng.random() < 0.2,
        "topic": rng.choice(("t-orders", "t", "other topic")),
        "timestamp": at_ms,
        "key": random_part(rng),
        "value": random_part(rng),
        "headers": rng.choice(([], ["h1"], ["h1", "h2", "h1"])),
    }


def converter_case(rng: random.Random, plugin: Plugin) -> Case:
    """Return a case of a converter: bytes to a value or back."""
    name = plugin.java_class.rpartition(".")[2]
    is_header = name == "SimpleHeaderConverter"
    config: dict[str, str] = {}
    if name == "JsonConverter":
        choices = {
            "schemas.enable": ("true", "false"),
            "decimal.format": ("BASE64", "numeric"),
            "replace.null.with.default": ("true", "false"),
        }
        config = {key: rng.choice(of) for key, of in choices.items() if rng.random() < 0.5}
    case: Case = {"class": plugin.java_class, "config": config}
    if rng.random() < 0.5:
        schema = random_schema(rng)
        value = text_of(schema, random_value(rng, replace(schema, default=None)))
        case["value"] = value if rng.random() < 0.7 else text_of(None, random_plain(rng))
        return {**case, "kind": "header-from" if is_header else "from"}
    data = rng.randbytes(rng.choice((1, 2, 4, 8, 8)))
    if name == "JsonConverter":
        data = _damaged(rng, random_part(rng) or "").encode()
    elif is_header or name == "StringConverter":
        data = _random_text(rng).encode()
    elif name == "BooleanConverter":
        data = rng.choice((b"\0", b"\1", b"\2", b""))
    return {
        **case,
        "kind": "header-to" if is_header else "to",
        "data": base64.b64encode(data).decode(),
    }


def _damaged(rng: random.Random, text: str) -> str:
    """Return a text, sometimes with another type or value somewhere."""
    if rng.random() < 0.5:
        return text
    pairs = (
        *(
            ('"int32"', '"string"'),
            ('"string"', '"int8"'),
            ('"boolean"', '"double"'),
            ("true", "5"),
        ),
        *(('"optional"', '"maybe"'), ('"field"', '"feld"'), ('"struct"', '"array"'), ("{", "[")),
        *((":1", ":01"), (":", ": "), ('"x"', "null"), ('"payload"', '"load"'), ("}", "} ")),
        *((":0", ":1.5"), ('"bytes"', '"int64"'), ('"map"', '"mop"'), ("-", ""), ("null", "[]")),
    )
    old, new = rng.choice(pairs)
    return text.replace(old, new, rng.choice((1, 100)))


def _random_text(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(_TEXTS)
    words = (
        '"',
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "1",
        "2.5",
        "true",
        "null",
        "x",
        '"y"',
        " ",
        "\\",
        "-3",
    )
    return "".join(rng.choice((*words, "70000", "1e40")) for _ in range(rng.randint(1, 9)))


# ---------------------------------------------------------------- answers

_BY_CLASS: Final = {(it.java_class, it.type): it for it in PLUGINS}


def answer(case: Case) -> dict[str, Any]:
    """Return the answer of our class to a case."""
    try:
        return _answer(case)
    except Exception as error:
        return {"class": type(error).__name__, "error": str(error)}


def _answer(case: Case) -> dict[str, Any]:
    kind, name = case["kind"], case["class"]
    if kind in {"transformation", "predicate"}:
        plugin = _BY_CLASS[name, kind].create()
        plugin.configure(case["config"])
        record = _record(case)
        if kind == "predicate":
            return {"test": plugin.test(record)}
        made = plugin.apply(record)
        if made is None:
            return {"dropped": True}
        return {
            "topic": made.topic,
            "partition": made.partition,
            "timestamp": made.timestamp_ms,
            "key": _shown(made.key_schema, made.key),
            "value": _shown(made.value_schema, made.value),
            "headers": [[it.key, _shown(it.schema, it.value)] for it in made.headers],
        }
    is_header = kind.startswith("header")
    converter = _BY_CLASS[name, "header_converter" if is_header else "converter"].create()
    if not is_header:
        converter.configure(case["config"], is_key=False)
    if kind.endswith("from"):
        value = read(case["value"])
        if is_header:
            data = converter.from_connect_header("t", "h", *value)
        else:
            data = converter.from_connect("t", (), *value)
        return {"data": None if data is None else base64.b64encode(data).decode()}
    data = base64.b64decode(case["data"])
    if is_header:
        return {"value": _shown(*converter.to_connect_header("t", "h", data))}
    return {"value": _shown(*converter.to_connect("t", (), data))}


def _record(case: Case) -> SinkRecord | SourceRecord:
    key, value = read(case["key"]), read(case["value"])
    headers = tuple(Header(name, STRING, "x") for name in case["headers"])
    common = (key.schema, key.value, value.schema, value.value, case["timestamp"], headers)
    if case["source"]:
        return SourceRecord(case["topic"], None, *common)
    return SinkRecord(case["topic"], 3, *common, offset=7)


def _sorted_pairs(value: Any) -> Any:
    """Return parsed JSON with the entries of maps, which have no order in Java, by their text."""
    if isinstance(value, dict):
        return {name: _sorted_pairs(it) for name, it in value.items()}
    if not isinstance(value, list):
        return value
    found = [_sorted_pairs(it) for it in value]
    is_map = all(isinstance(it, list) and len(it) == 2 for it in found)
    return sorted(found, key=repr) if is_map else found


_JAVA_CLASS: Final = re.compile(
    r"(?:class )?(?:java\.(?:lang|util|math|nio)\."
    r"|org\.apache\.kafka\.connect\.(?:data|source|sink)\.)"
    r"(String|Byte|Short|Integer|Long|Float|Double|Boolean|BigDecimal|Date|HashMap|LinkedHashMap|"
    r"ArrayList|Struct|SourceRecord|HeapByteBuffer)\b|class (\[B)"
)
_PYTHON: Final = {
    **dict.fromkeys(("Byte", "Short", "Integer", "Long"), "int"),
    **dict.fromkeys(("Float", "Double"), "float"),
    **dict.fromkeys(("HashMap", "LinkedHashMap"), "dict"),
    "String": "str",
    "Boolean": "bool",
    "BigDecimal": "Decimal",
    "ArrayList": "list",
    "Date": "moment",
    "[B": "bytes",
    "Struct": "Struct",
    "SourceRecord": "SourceRecord",
}
_CLASSES: Final = {
    "ConfigException": "ConfigErrors",
    "IllegalArgumentException": "ValueError",
    "IndexOutOfBoundsException": "ValueError",
}


def normal(given: dict[str, Any], *, java: bool) -> dict[str, Any]:
    """Return an answer with parsed JSON, and errors in the words of Python."""
    if "error" in given:
        text = given["error"].replace("to be a java.util.Date", "to be a moment")
        if java:
            text = _JAVA_CLASS.sub(lambda match: _PYTHON[match[1] or match[2]], text)
            text = text.replace("Invalid Java object", "Invalid object")
            text = text.replace("Java class ", "Class ").replace("found: [B", "found: bytes")
            text = text.partition("NOTHING for configuration ")[2] or text
        else:
            text = re.sub(
                r"\b(date|datetime|time)\b(?= for |$| objects| does|\)| with custom)",
                "moment",
                text,
            )
        if text.startswith("Timestamp missing"):
            text = "Timestamp missing"
        return {"class": _CLASSES.get(given["class"], given["class"]), "error": text}
    found = {**given}
    for name in ("key", "value"):
        if isinstance(found.get(name), str):
            found[name] = json.loads(found[name])
    found |= {name: _sorted_pairs(found[name]) for name in ("key", "value") if name in found}
    if "headers" in found:
        found["headers"] = [
            [key, of and _sorted_pairs(json.loads(of))] for key, of in found["headers"]
        ]
    if isinstance(found.get("data"), str):
        data = base64.b64decode(found["data"])
        try:
            found["data"] = _sorted_pairs(json.loads(data, strict=False))
        except ValueError:
            found["data"] = data
    return found
