"""Transforms, predicates and converters of Connect against Kafka's classes, on random records.

Both get the same settings and records; results and the texts of errors are equal but for `REVIEWED`
and for the names of classes, which are Python's here.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla.connect.plugins import PLUGINS
from ottla.connect.runtime.offset_file import decode_offsets, encode_offsets
from ottla.connect.runtime.validation import key_info
from ottla.connect.settings import SINK, SOURCE
from tests.connect.cases import Case, answer, converter_case, normal, random_case

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
HERE = Path(__file__).parent
CASES = 100
"""Cases of each class."""

Answer = dict[str, Any]
REVIEWED: Final[dict[str, Callable[[Case, Answer, Answer], bool]]] = {
    "a NullPointerException or a ClassCastException is a DataException or a ConfigErrors": (
        lambda _, theirs, ours: (
            theirs.get("class") in {"NullPointerException", "ClassCastException"}
            and ours.get("class") in {"DataException", "ConfigErrors", "ConnectException"}
        )
    ),
    "Kafka's JsonConverter cannot write the empty map of a text, whose keys have no type": (
        lambda _, theirs, ours: (
            "Schema.keySchema()" in str(theirs.get("error")) and "'keys': None" in str(ours)
        )
    ),
    "an object without a text is shown by its address in Java": lambda _, theirs, ours: (
        "[B@" in str(theirs) or ("InsertionSpec@" in str(theirs) and "static field" in str(ours))
    ),
    "a number without a schema has no size in Python": lambda case, theirs, ours: (
        case["kind"] == "from"
        and "Failed to serialize to" in str(theirs.get("error"))
        and not str(case["value"]).startswith('{"schema":')
        and "data" in ours
    ),
    "Java 17 writes more digits of a float than it takes to read the same again": (
        lambda _, theirs, ours: _rounded(theirs) == _rounded(ours)
    ),
    "the first of several bad fields is another, as sets in Java have their order": (
        lambda case, theirs, ours: (
            case["class"].partition("$")[0].endswith(("Cast", "MaskField"))
            and theirs.get("class") == ours.get("class") == "DataException"
        )
    ),
    "entries of a map have no order in Java": lambda case, theirs, ours: (
        case["class"].endswith(("StringConverter", "SimpleHeaderConverter"))
        and sorted(str(theirs.get("data"))) == sorted(str(ours.get("data")))
    ),
    "Python's dates have the years 1 to 9999": lambda _, theirs, ours: (
        "outside of the years" in str(ours.get("error")) and theirs != ours
    ),
}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(it) for name, it in value.items()}
    if isinstance(value, list):
        return [_rounded(it) for it in value]
    return f"{value:.6g}" if isinstance(value, float) else value


@pytest.fixture(scope="module")
def answers(kafka: Kafka) -> list[tuple[Case, Answer, Answer]]:
    """Return cases of every class, with both answers."""
    rng = random.Random(14)
    cases: list[Case] = []
    for plugin in PLUGINS:
        if not plugin.java_class.startswith("org.apache.kafka."):
            continue
        if plugin.type in {"transformation", "predicate"}:
            cases += [random_case(rng, plugin) for _ in range(CASES)]
        elif plugin.type == "converter" or "SimpleHeader" in plugin.java_class:
            cases += [converter_case(rng, plugin) for _ in range(CASES)]
    classes = kafka.compile(HERE / "java" / "ConnectCases.java")
    done = kafka.run("ConnectCases", classes=classes, stdin="\n".join(map(json.dumps, cases)))
    lines = done.stdout.splitlines()
    return [
        (case, normal(json.loads(line), java=True), normal(answer(case), java=False))
        for case, line in zip(cases, lines, strict=True)
    ]


def test_answers_are_equal(answers: list[tuple[Case, Answer, Answer]]) -> None:
    """Each difference is a reviewed one."""
    different = [
        it
        for it in answers
        if it[1] != it[2] and not any(is_known(*it) for is_known in REVIEWED.values())
    ]
    assert not different, "\n".join(map(str, different[:3]))


def test_cases_reach_results_and_errors(answers: list[tuple[Case, Answer, Answer]]) -> None:
    """Each class has results; classes that can fail have errors, too."""
    results = Counter(case["class"] for case, theirs, _ in answers if "error" not in theirs)
    errors = Counter(case["class"] for case, theirs, _ in answers if "error" in theirs)
    names = {case["class"] for case, _, _ in answers}
    assert min(results[name] for name in names) >= 10
    assert len(errors) >= 30


def test_few_answers_are_reviewed_differences(
    answers: list[tuple[Case, Answer, Answer]],
) -> None:
    """The comparison does not pass because everything is excused."""
    assert sum(theirs != ours for _, theirs, ours in answers) < len(answers) * 0.05


def test_settings_are_equal(kafka: Kafka) -> None:
    """As the REST API describes them; Kafka's documents of all connectors' are longer."""
    tables = {it.java_class: it.load().definitions for it in PLUGINS if "apache" in it.java_class}
    tables |= {"SINK": SINK, "SOURCE": SOURCE}
    classes = kafka.compile(HERE / "java" / "PluginSettings.java")
    done = kafka.run("PluginSettings", *tables, classes=classes)
    theirs = [tuple(line.split("\t")) for line in done.stdout.splitlines()]
    ours: list[tuple[str, ...]] = []
    for name, table in tables.items():
        for key in table.keys.values():
            info = key_info(key)
            del info["dependents"]
            if name in {"SINK", "SOURCE"}:
                del info["documentation"]
            ours.append((name, *(_text(it) for it in info.values())))
    assert sorted(ours) == sorted(theirs)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_offset_files_are_read_by_either_worker(kafka: Kafka, tmp_path: Path) -> None:
    """Java reads the map that is written here, and the one that Java writes is read here."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    classes = kafka.compile(HERE / "java" / "OffsetFile.java")
    for count in (0, 1, 13, 1000):
        entries: dict[bytes | None, bytes | None] = {
            b'["c",{"f":"%d"}]' % it: None if it % 7 == 6 else b'{"position":%d}' % it
            for it in range(count)
        }
        ours.write_bytes(encode_offsets(entries))
        done = kafka.run("OffsetFile", str(ours), str(theirs), classes=classes)
        assert len(done.stdout.splitlines()) == count
        assert decode_offsets(theirs.read_bytes()) == entries
