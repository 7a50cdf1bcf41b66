"""Transforms and predicates, found by the names that configurations have."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from ottla.config.problems import ConfigErrors
from ottla.connect.data import INT8, INT32, INT64, STRING, Header, Struct, struct
from ottla.connect.errors import BadRequestException, ConnectException, DataException
from ottla.connect.plugins import PLUGINS, Plugin, Plugins
from ottla.connect.records import ConnectRecord, SinkRecord
from ottla.connect.runtime.standalone import CONNECTORS
from ottla.connect.runtime.validation import require_valid, validate
from tests.connect.cases import answer, converter_case, random_case

INNER = struct(None, b=INT8.with_default(3))
SCHEMA = struct("s", a=STRING, n=INNER)


def _configured(name: str, /, *kinds: str, **settings: str) -> Any:
    plugins = Plugins()
    plugins.allow_python(["tests.connect", "os", "nothing"])
    made = plugins.find(name, *(kinds or ("transformation",))).create()
    made.configure({key.replace("_", "."): of for key, of in settings.items()})
    return made


def _record(**changed: Any) -> SinkRecord:
    value = Struct(SCHEMA, a="7", n=Struct(INNER))
    given = {"topic": "t", "partition": 1, "value_schema": SCHEMA, "value": value, "offset": 9}
    return SinkRecord(**{**given, "timestamp_ms": 1_582_934_400_000, **changed})


def test_flatten_then_cast_then_insert() -> None:
    """A chain as connectors have it; the record that came in is not changed."""
    record = _record()
    flat = _configured("Flatten$Value", delimiter="_").apply(record)
    assert [it.name for it in flat.value_schema.fields] == ["a", "n_b"]
    cast = _configured("Cast$Value", spec="a:int32,n_b:string").apply(flat)
    assert (cast.value["a"], cast.value["n_b"]) == (7, "3")
    made = _configured("InsertField$Value", topic_field="from!", offset_field="at").apply(cast)
    assert (made.value["from"], made.value["at"], made.offset) == ("t", 9, 9)
    assert record == _record()


def test_names_of_fields_with_dots() -> None:
    """The second syntax reaches nested fields; an open backtick is refused."""
    extract = _configured("ExtractField$Value", field="n.b", field_syntax_version="V2")
    made = extract.apply(_record())
    assert (made.value_schema, made.value) == (INT8.with_default(3), 3)
    with pytest.raises(ConfigErrors, match=r"^Incomplete backtick pair in path: \[`n\]"):
        _configured("ExtractField$Value", field="`n", field_syntax_version="V2")
    with pytest.raises(ValueError, match=r"^Unknown field: x$"):
        _configured("ExtractField$Value", field="x").apply(_record())


def test_keys_headers_and_topics() -> None:
    """Each transform changes its part only."""
    keyed = _configured("ValueToKey", fields="a").apply(_record())
    assert keyed.key == Struct(struct(a=STRING), a="7")
    moved = _configured("HeaderFrom$Value", fields="a", headers="h", operation="move").apply(keyed)
    assert moved.headers == (Header("h", STRING, "7"),)
    assert moved.value_schema.field("a") is None
    assert _configured("DropHeaders", headers="h").apply(moved).headers == ()
    assert (
        _configured("InsertHeader", header="n", value_literal="300").apply(keyed).headers[0].value
        == 300
    )
    assert _configured("TimestampRouter").apply(keyed).topic == "t-20200229"
    routed = _configured("RegexRouter", regex="(.)", replacement="x-$1").apply(keyed)
    assert routed.topic == "x-t"
    assert _configured("Filter").apply(keyed) is None


def test_predicates() -> None:
    """Headers, topics, and records without a value."""
    record = _record(headers=(Header("h", None, 1),))
    assert _configured("HasHeaderKey", "predicate", name="h").test(record)
    assert not _configured("TopicNameMatches", "predicate", pattern="x.*").test(record)
    assert _configured("RecordIsTombstone", "predicate").test(_record(value=None))


def upper(record: ConnectRecord) -> ConnectRecord | None:
    """Serve as the function of a configuration."""
    record.topic = record.topic.upper()
    return None if record.value is None else record


def test_a_function_as_transform() -> None:
    """Named by the configuration; it may drop records, and must return one otherwise."""
    transform = _configured("Python", function=f"{__name__}.upper")
    assert transform.apply(_record()).topic == "T"
    assert transform.apply(_record(value=None)) is None
    for path in ("os.system", "nothing", f"{__name__}.missing", f"{__name__}.INNER", ""):
        with pytest.raises(ConfigErrors, match="function"):
            _configured("Python", function=path)
    with pytest.raises(ConnectException, match=r"^The function of a Python transform returned a"):
        _configured("Python", function="tests.connect.test_transforms.wrong").apply(_record())


def test_a_function_of_a_module_that_the_worker_does_not_list() -> None:
    """Whoever may configure connectors runs no other code of the machine, nor imports it."""
    plugins = Plugins()
    refused = r"is of no module that the worker's ottla.python.modules lists"
    for allowed in ([], ["tests.conn"], ["tests.connect.test_transforms.upper"]):
        plugins.allow_python(allowed)
        transform = plugins.find("ottla.connect.Python", "transformation").create()
        with pytest.raises(ConfigErrors, match=refused):
            transform.configure({"function": f"{__name__}.upper"})
    config = {
        "name": "s",
        "connector.class": "FileStreamSource",
        "topic": "t",
        "transforms": "run",
        "transforms.run.type": "ottla.connect.Python",
        "transforms.run.function": "subprocess.run",
    }
    with pytest.raises(BadRequestException, match=refused):
        require_valid(validate(Plugins(*CONNECTORS), config))


def wrong(record: ConnectRecord) -> str:
    """Serve as a function that is no transform."""
    return record.topic


def test_fields_that_cannot_be_changed() -> None:
    """The texts name the field, the type or the setting."""
    with pytest.raises(DataException, match=r"^Value \(x\) was out of range for requested data"):
        _configured("Cast$Value", spec="int8").apply(_record(value_schema=STRING, value="x"))
    long = "1" * 100_000 + "x"  # a minute, if each digit were tried as the last before a point
    with pytest.raises(DataException, match=r"x\) was out of range for requested data type$"):
        _configured("Cast$Value", spec="float64").apply(_record(value_schema=STRING, value=long))
    huge = _record(value_schema=None, value=-(10**400))
    assert _configured("Cast$Value", spec="float64").apply(huge).value == -math.inf
    with pytest.raises(ConfigErrors, match=r"^Invalid type found in casting spec: int7$"):
        _configured("Cast$Value", spec="a:int7")
    with pytest.raises(DataException, match=r"^Only Map objects supported .* found: int$"):
        _configured("MaskField$Value", fields="a").apply(_record(value_schema=None, value=1))
    with pytest.raises(ConfigErrors, match=r"Invalid rename mapping: a$"):
        _configured("ReplaceField$Value", renames="a")


def test_plugins_are_found_by_class_and_alias() -> None:
    """Unknown names are refused with the nearest one; nothing else is imported."""
    plugins = Plugins(
        Plugin("example.OwnConnector", "source", "tests.connect.test_transforms:upper")
    )
    for name in ("Json", "JsonConverter", "org.apache.kafka.connect.json.JsonConverter"):
        assert plugins.find(name, "converter").version == "4.3.0"
    assert plugins.find("Own", "source", "sink").java_class == "example.OwnConnector"
    with pytest.raises(ConnectException, match=r"^Unknown plugin InsertFeld\$Value; did you mean"):
        plugins.find("InsertFeld$Value", "transformation")
    with pytest.raises(ConnectException, match=r"^Unknown plugin os\.system$"):
        plugins.find("os.system", "transformation")


def test_each_plugin_describes_itself() -> None:
    """Names are unique within a kind; classes have definitions and documents."""
    assert len({(it.java_class, it.type) for it in PLUGINS}) == len(PLUGINS)
    for plugin in PLUGINS:
        found = plugin.load()
        assert found.version == plugin.version
        assert all(it.doc for it in found.definitions.keys.values())


def test_random_cases_have_answers_of_known_kinds() -> None:
    """No plug-in answers a random record with an error of Python's own."""
    rng = random.Random(38)
    for plugin in PLUGINS:
        if plugin.java_class.startswith("ottla."):
            continue
        for _ in range(15):
            is_converter = "converter" in plugin.type
            case = (converter_case if is_converter else random_case)(rng, plugin)
            if is_converter and plugin.type == "header_converter" and "header" not in case["kind"]:
                continue
            got = answer(case)
            known = {"DataException", "ConnectException", "ConfigErrors", "ValueError"}
            assert got.get("class", "DataException") in known | {"SchemaBuilderException"}, (
                case,
                got,
            )


def test_sizes_of_whole_values() -> None:
    """A type for the whole value keeps the rest of its schema."""
    schema = INT64.as_optional().with_default(300)
    made = _configured("Cast$Value", spec="int8").apply(_record(value_schema=schema, value=300))
    assert (made.value, made.value_schema.default, made.value_schema.optional) == (44, 44, True)
    hoisted = _configured("HoistField$Value", field="x").apply(_record(value_schema=INT32, value=1))
    assert hoisted.value["x"] == 1
