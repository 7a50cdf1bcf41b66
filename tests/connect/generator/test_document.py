"""The page docs/generator.md: its table of settings, its schema, and its steps as a new user."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from ottla import Admin, Consumer, NewTopic
from ottla.connect.generator.draws import Draws
from ottla.connect.generator.schema import _PROPERTIES, read_schema
from ottla.connect.generator.source import DEFINITIONS
from ottla.connect.generator.words import WORDS
from ottla.testing.cluster import Cluster
from tests.waits import WAIT_S, wait_for

PAGE = Path(__file__).parents[3] / "docs" / "generator.md"


def settings_table() -> str:
    """Return the rows of the table of settings, from the definitions."""
    return "".join(
        f"| `{it.name}` | {'' if it.default is None else f'`{it.default}`'} | {it.doc} |\n"
        for it in DEFINITIONS.keys.values()
    )


def test_the_table_of_settings_is_that_of_the_definitions() -> None:
    """Every setting, its default and its text; OTTLA_REWRITE=1 writes them."""
    text = PAGE.read_text(encoding="utf-8")
    head = "| setting | default | meaning |\n|---|---|---|\n"
    before, _, rest = text.partition(head)
    _, _, after = rest.partition("\n\n")
    expected = f"{before}{head}{settings_table()}\n{after}"
    if os.environ.get("OTTLA_REWRITE"):
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected


def test_the_schema_of_the_page_is_valid() -> None:
    """And the page has every annotation and every table of words."""
    text = PAGE.read_text(encoding="utf-8")
    schema = re.findall(r"```json\n(.*?)```", text, re.DOTALL)[1]
    plan = read_schema(schema)
    values = [plan.make(Draws(str(number)), number) for number in range(100)]
    assert all(re.fullmatch(r"S-[A-F]\d{3}", it["sensor"]) for it in values)
    assert {it["place"] for it in values} - {*WORDS["city"]} == {None}
    for name in {it for names in _PROPERTIES.values() for it in names}:
        assert f"\n| `{name}` | " in text
    assert all(f"`{name}`" in text for name in WORDS)


def test_the_steps_of_the_page(tmp_path: Path) -> None:
    """Its two files and its command, with this node, a free port and shorter pauses."""
    text = PAGE.read_text(encoding="utf-8")
    first = json.loads(re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0])
    files = re.findall(r"`(\w+\.properties)`:\n\n```properties\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in files] == ["worker.properties", "orders.properties"]
    words = re.search(r"`ottla (connect-standalone [^`]*)`", text)
    assert words is not None
    with Cluster() as cluster:
        for name, content in files:
            own = content.replace("localhost:9092", cluster.bootstrap).replace(":8083", ":0")
            (tmp_path / name).write_text(own.replace("max.interval=100", "max.interval=1"))
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 1, 1)])
        command = [sys.executable, "-m", "ottla", *words[1].split()]
        with (
            Popen(command, cwd=tmp_path, stdout=PIPE, text=True) as process,
            Consumer(
                "orders",
                bootstrap_servers=cluster.bootstrap,
                group_id="check",
                auto_offset_reset="earliest",
            ) as consumer,
        ):
            records: list[Any] = []
            try:
                wait_for(lambda: len(records.__iadd__(consumer.poll(0.2))) >= 1000)
            finally:
                process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0
    assert [int(it.key) for it in records] == list(range(1000))
    assert json.loads(records[0].value) == first
