"""The generator: equal records for a seed, restarts, limits and the texts of refusals."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
from typing import Any

import pytest

from ottla.config.problems import ConfigErrors
from ottla.connect.converters.json import JsonConverter
from ottla.connect.data import SchemaType, Struct, check_value
from ottla.connect.errors import ConnectException
from ottla.connect.generator.draws import Draws, Pattern
from ottla.connect.generator.schema import SchemaError, read_schema
from ottla.connect.generator.source import DEFINITIONS, Generator
from ottla.connect.generator.words import QUICKSTARTS, WORDS
from ottla.connect.plugins import Plugins
from ottla.connect.runtime.standalone import CONNECTORS
from ottla.connect.runtime.validation import validate
from ottla.testing.connect import check_restarts, collect

ORDERS = """\
ordertime=1487715775521,orderid=0,itemid=Item_7,orderunits=9.269722438514604,\
address=Struct{city=Bogota,state=State_47,zipcode=77417}
ordertime=1487715776521,orderid=1,itemid=Item_114,orderunits=2.9661192286639606,\
address=Struct{city=Milan,state=State_21,zipcode=85863}
ordertime=1487715777521,orderid=2,itemid=Item_5,orderunits=6.493824823500326,\
address=Struct{city=Berlin,state=State_4,zipcode=19383}
""".splitlines()
CLASS = "io.confluent.kafka.connect.datagen.DatagenConnector"


@pytest.fixture(autouse=True)
def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the time that a task waits once its source has nothing more."""
    monkeypatch.setattr("ottla.connect.simple._WAIT_S", 0)


def config(**settings: str) -> dict[str, str]:
    """Return settings without pauses; `_` stands for a point."""
    base = {"kafka.topic": "made", "max.interval": "0", "iterations": "20"}
    return base | {name.replace("_", "."): value for name, value in settings.items()}


def field(kind: Any, **properties: Any) -> str:
    """Return the schema of a record with one field `x`."""
    of = {"type": kind, "arg.properties": properties}
    fields = [{"name": "x", "type": of}]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


def values(text: str, count: int = 200) -> list[Any]:
    """Return the field `x` of the first records."""
    plan = read_schema(text)
    return [plan.make(Draws(f"0:0:{number}"), number)["x"] for number in range(count)]


@pytest.mark.parametrize("quickstart", QUICKSTARTS)
def test_a_restart_continues_the_same_sequence(quickstart: str) -> None:
    """After each record of three tasks; no record lost, none twice, all with a key and a schema."""
    settings = config(quickstart=quickstart, tasks_max="3")
    records = check_restarts(Generator, settings)
    assert len(records) == 60
    assert records == collect(Generator, settings)
    for record in records:
        assert isinstance(record.value, Struct)
        assert record.value_schema == record.value.schema
        assert record.topic == "made"
        assert record.key == record.value[QUICKSTARTS[quickstart][0]]
    tasks = [[it.value for it in records if it.source_partition == {"task": i}] for i in range(3)]
    assert tasks[0] != tasks[1] != tasks[2] != tasks[0]


def test_records_are_the_same_in_every_version() -> None:
    """Literal records: a change of them would break restarts of running connectors."""
    first = collect(Generator, config(quickstart="orders", iterations="3"))
    assert [repr(it.value) for it in first] == [f"Struct{{{it}}}" for it in ORDERS]
    other = collect(Generator, config(quickstart="orders", iterations="3", random_seed="1"))
    assert [it.value for it in other] != [it.value for it in first]
    assert [it.source_offset for it in first] == [{"next": 1}, {"next": 2}, {"next": 3}]


def test_no_state_of_the_process_has_an_influence() -> None:
    """Another process, with another seed of hashes, makes the same records."""
    code = (
        "from ottla.connect.generator.source import Generator\n"
        "from ottla.testing.connect import collect\n"
        f"print(*collect(Generator, {config(quickstart='clickstream')!r}), sep='\\n')"
    )
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    own = [str(it) for it in collect(Generator, config(quickstart="clickstream"))]
    assert text.stdout.splitlines() == own


def test_iterations_end_each_task() -> None:
    """Also after a restart beyond the end, and with none at all."""
    settings = config(quickstart="users", iterations="7")
    records = collect(Generator, settings)
    assert len(records) == 7
    assert collect(Generator, settings, records) == []
    assert collect(Generator, config(quickstart="users", iterations="0")) == []
    shorter = config(quickstart="users", iterations="3")
    assert collect(Generator, shorter, records) == []
    endless = config(quickstart="users", iterations="-1")
    assert len(collect(Generator, endless, limit=1234)) == 1234


def test_pauses_do_not_change_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that sleeping moves: the mean is half of the maximum, none is lost."""
    clock = 0.0

    class Clock:
        """The time of the test."""

        @staticmethod
        def monotonic() -> float:
            """Return it."""
            return clock

        @staticmethod
        def sleep(wait_s: float) -> None:
            """Move it."""
            nonlocal clock
            clock += wait_s

    monkeypatch.setattr("ottla.connect.generator.source.time", Clock)
    settings = DEFINITIONS.parse(
        config(quickstart="users", iterations="1000") | {"max.interval": "100"}
    )
    source = Generator(settings)
    records: list[Any] = []
    while len(records) < 1000:
        batch = list(source.read({"task": 0}, records[-1].offset if records else None))
        clock += 0 if batch else 0.01
        records += batch
    assert 45 <= clock <= 55
    free = Generator(settings | {"max.interval": 0}).read({"task": 0}, None)
    assert [it.value for it in records] == [it.value for it in free]


@pytest.mark.parametrize("offset", [{}, {"next": -1}, {"next": "1"}, {"next": True}, {"next": 1.5}])
def test_wrong_offsets_are_refused(offset: dict[str, Any]) -> None:
    """In one line, which names the task."""
    source = Generator(DEFINITIONS.parse(config(quickstart="users")))
    with pytest.raises(ConnectException, match="The offset of task 4 has no number of a record"):
        list(source.read({"task": 4}, offset))


def test_converters_apply() -> None:
    """JSON with a schema, and back; all types in one record."""
    fields: dict[str, Any] = {
        "flag": "boolean",
        "small": {"type": "int", "arg.properties": {"range": {"min": 1, "max": 3}}},
        "big": "long",
        "real": "float",
        "exact": {"type": "double", "arg.properties": {"options": [1, 2.5]}},
        "name": {"type": "string", "arg.properties": {"words": "first_name"}},
        "day": {
            "type": "int",
            "logicalType": "date",
            "arg.properties": {"iteration": {"start": 0, "restart": 365}},
        },
        "at": {
            "type": "long",
            "logicalType": "timestamp-millis",
            "arg.properties": {"range": {"min": 0, "max": 1000}},
        },
        "tags": {"type": "array", "items": "string", "arg.properties": {"length": 2}},
        "kind": {"type": "enum", "name": "k", "symbols": ["A", "B"]},
        "note": ["null", "string"],
        "inner": {"type": "record", "name": "i", "fields": [{"name": "n", "type": "int"}]},
    }
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    text = json.dumps({"type": "record", "namespace": "shop", "name": "all", "fields": listed})
    settings = config(schema_string=text, schema_keyfield="name", iterations="50")
    records = check_restarts(Generator, settings)
    converter = JsonConverter()
    converter.configure({"schemas.enable": "true"}, is_key=False)
    for number, record in enumerate(records):
        record.value.validate()
        assert record.key == record.value["name"] in WORDS["first_name"]
        assert record.value["day"] == dt.date(1970, 1, 1) + dt.timedelta(days=number)
        assert len(record.value["tags"]) == 2
        data = converter.from_connect("made", (), record.value_schema, record.value)
        assert data is not None
        assert json.loads(data)["payload"]["kind"] in {"A", "B"}
        back = converter.to_connect("made", (), data)
        assert back.schema is not None
        assert back.schema.type is SchemaType.STRUCT
    assert {it.value["note"] is None for it in records} == {True, False}
    assert {it.value["small"] for it in records} == {1, 2}
    assert records[0].value.schema.name == "shop.all"


@pytest.mark.parametrize(
    "pattern",
    ["User_[1-9]", "[A-Z]{3}-\\d{4}", "a?b*c+", "[a-c_.-]{1,9}", "\\.\\[x\\]", "é", "", "\\w\\s.",
     "[\\d]{2}[\\-+]"],
)  # fmt: skip
def test_patterns_make_texts_that_they_match(pattern: str) -> None:
    """Read by Python's own regular expressions."""
    made = Pattern(pattern)
    for number in range(300):
        text = made.draw(Draws(str(number)))
        assert re.fullmatch(pattern, text), text


def test_optional_records() -> None:
    """They have the schema of their field, with which converters write them."""
    inner = {"type": "record", "name": "i", "fields": [{"name": "a", "type": "int"}]}
    outer = {"type": "record", "name": "o", "fields": [{"name": "x", "type": ["null", inner]}]}
    plan = read_schema(json.dumps(outer))
    made = [plan.make(Draws(str(number)), number) for number in range(20)]
    for value in made:
        check_value(plan.schema, value)
    assert {it["x"] is None for it in made} == {True, False}


def test_ranges_and_iterations() -> None:
    """The least value is reached, the greatest is not; an iteration starts again."""
    assert set(values(field("int", range={"min": 3, "max": 6}))) == {3, 4, 5}
    assert all(0.5 <= it < 0.6 for it in values(field("double", range={"min": 0.5, "max": 0.6})))
    assert values(field("int", iteration={"start": 5, "step": 2, "restart": 10}), 5) == [
        5, 7, 9, 5, 7,
    ]  # fmt: skip
    assert values(field("long", iteration={"start": 1, "step": -1, "restart": -1}), 4) == [
        1, 0, 1, 0,
    ]  # fmt: skip
    assert values(field("int", iteration={"start": (1 << 31) - 2}), 3) == [
        (1 << 31) - 2, (1 << 31) - 1, (1 << 31) - 2,
    ]  # fmt: skip
    assert set(map(len, values(field("string", length={"min": 2, "max": 4})))) == {2, 3}
    assert values(field("boolean", odds=1)) == [True] * 200
    wide = values(field("long"))
    assert min(wide) < -(1 << 62) < 1 << 62 < max(wide)


INVALID = {
    "[1]": "not an object with the type record",
    "{": "the schema is not JSON",
    "[" * 50_000: "the schema is not JSON",
    " " * 70_000: "more than 65536 characters",
    field("money"): "x: the type must be one of boolean, int",
    field("int", ranges={}): "x: unknown property ranges; did you mean range?",
    field("int", range={"min": 3, "max": 3}): "x: min and max must be whole numbers",
    field("int", range={"min": 1.5}): "x: min and max must be whole numbers",
    field("int", range={"min": True}): "x: min and max must be whole numbers",
    field("int", range={"least": 1}): "x: a range has min and max only",
    field("double", range={"max": float("inf")}): "x: min and max must be numbers",
    field("double", range={"max": 10**400}): "x: min and max must be numbers",
    field("boolean", odds=10**400): "x: odds must be a number from 0 to 1",
    field("int", range={}, options=[1]): "x: only one of range, options can be set",
    field("int", options=[]): "x: options must be a list that is not empty",
    field("int", options=[1, 1 << 31]): "x: 2147483648 in options is no int32",
    field("string", options=[1]): "x: 1 in options is no string",
    field("string", regex="(a+)+"): "x: regex has (; it may have",
    field("string", regex="[a"): "x: regex has a [ without",
    field("string", regex="[z-a]"): "x: regex has the range z-a",
    field("string", regex="a{3,1}"): "x: regex repeats from 3 to 1 times",
    field("string", regex="a{9999}"): "x: regex makes more than 1024 characters",
    field("string", regex="a" * 201): "x: regex has more than 200 characters",
    field("string", regex="\\b"): "x: regex has \\b; it may have",
    field("string", regex="\ud800"): "the schema is not JSON",
    field("string", words="animals"): "x: words must be one of city, color",
    field("string", length=1001): "x: length must be a number up to 1000",
    field("int", iteration={"start": 1, "step": 0}): "x: start, step and restart must be whole",
    field("int", iteration={"start": 1, "restart": 0}): "x: start, step and restart must be whole",
    field("int", iteration={"step": 1}): "x: start, step and restart must be whole",
    field("boolean", odds=2): "x: odds must be a number from 0 to 1",
    json.dumps({"type": "record", "name": "r", "fields": []}): "the record must have from 1 to 200",
    json.dumps({"type": "record", "name": "r", "fields": [{"name": "a b", "type": "int"}]}): (
        "the record has a field without a valid name"
    ),
    json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}] * 2}): (
        "the record has two fields a"
    ),
    json.dumps({"type": "record", "fields": [{"name": "a", "type": "int"}]}): (
        "the record has no valid name"
    ),
    json.dumps({"type": "record", "name": "r", "fields": [
        {"name": "a", "type": ["int", "long"]}]}): (
        "a: a list of types must have null and one other type"
    ),
    json.dumps({"type": "record", "name": "r", "fields": [
        {"name": "a", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}): (
        "a: timestamp-millis needs options, a range"
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", INVALID)
def test_invalid_schemas_have_one_line(text: str) -> None:
    """It names the field."""
    with pytest.raises(SchemaError) as caught:
        read_schema(text)
    assert str(caught.value).startswith(INVALID[text]) or INVALID[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_small_schema_cannot_fill_memory() -> None:
    """Arrays of arrays, and nesting without end."""
    kind: Any = "string"
    for _ in range(3):
        kind = {"type": "array", "items": kind, "arg.properties": {"length": 1000}}
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]})
    with pytest.raises(SchemaError, match="more than 10000 values"):
        read_schema(text)
    kind = "string"
    for _ in range(10):
        kind = {"type": "array", "items": kind, "arg.properties": {"length": 1}}
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]})
    with pytest.raises(SchemaError, match="more than 8 levels"):
        read_schema(text)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"quickstart": "orders"}, "kafka.topic is missing: the topic to write to."),
        ({"kafka.topic": "t"}, "Exactly one of quickstart and schema.string must be set."),
        (
            {"kafka.topic": "t", "quickstart": "orders", "schema.string": field("int")},
            "Exactly one of quickstart and schema.string must be set.",
        ),
        (
            {"kafka.topic": "t", "quickstart": "order"},
            (
                "Invalid value order for configuration quickstart: String must be one of: orders, "
                "users, pageviews, clickstream"
            ),
        ),
        (
            {"kafka.topic": "t", "quickstart": "orders", "schema.keyfield": "address"},
            (
                "schema.keyfield must be a field with a plain value (ordertime, orderid, itemid, "
                "orderunits), not address."
            ),
        ),
        (
            {"kafka.topic": "t", "quickstart": "orders", "iterations": "-2"},
            "Invalid value -2 for configuration iterations: Value must be at least -1",
        ),
        (
            {"kafka.topic": "t", "schema.string": field("money")},
            (
                f"Invalid value {field('money')} for configuration schema.string: x: the type must "
                "be one of boolean, int, long, float, double, string, array, enum, record, or a "
                "list of null and one"
            ),
        ),
    ],
)
def test_contradictions_are_refused_by_validation(settings: dict[str, str], text: str) -> None:
    """Once, with one line; a start refuses them with the same text."""
    given = {"name": "made", "connector.class": CLASS, **settings}
    infos = validate(Plugins(*CONNECTORS), given)
    assert [it for info in infos["configs"] for it in info["value"]["errors"]] == [text]
    with pytest.raises(ConfigErrors) as caught:
        collect(Generator, settings)
    assert str(caught.value) == text


def test_the_class_name_and_settings_of_confluents_connector() -> None:
    """Valid as they stand, by name, alias and topic; each setting is listed once."""
    for name in (CLASS, "DatagenConnector", "Datagen"):
        given = {"name": "d", "connector.class": name, "kafka.topic": "t", "quickstart": "users",
                 "max.interval": "100", "iterations": "5", "tasks.max": "2"}  # fmt: skip
        infos = validate(Plugins(*CONNECTORS), given)
        assert infos["error_count"] == 0
        names = [it["value"]["name"] for it in infos["configs"]]
        assert len(names) == len(set(names))
        assert set(DEFINITIONS.keys) <= set(names)
    recommended = {
        it["value"]["name"]: it["value"]["recommended_values"] for it in infos["configs"]
    }
    assert recommended["quickstart"] == list(QUICKSTARTS)
    assert recommended["schema.keyfield"] == ["registertime", "userid", "regionid", "gender"]
    plugin = Plugins(*CONNECTORS).find("Datagen", "source")
    assert plugin.load().runtime == "thread"
