"""`ottla sql`: what a statement passes on to the scan, output formats, and errors in one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from ottla.cli.commands.sql import sql
from ottla.records.builder import encode_batch
from ottla.storage.directories.checkpoints import encode_offsets
from ottla.types import TopicPartition

duckdb = pytest.importorskip("duckdb")

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

TIME = 1_767_225_600_000  # 2026-01-01


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a topic of six JSON values a minute apart, with a name that SQL has to quote."""
    offsets = {}
    for topic in ("orders", "my-topic"):
        log = tmp_path / f"{topic}-0"
        log.mkdir()
        rows = [
            (TIME + n * 60_000, b"k%d" % (n % 2), b'{"id":%d,"amount":%d.5}' % (n, n), ())
            for n in range(6)
        ]
        (log / f"{0:020d}.log").write_bytes(encode_batch(rows))
        offsets[TopicPartition(topic, 0)] = 6
    (tmp_path / "replication-offset-checkpoint").write_bytes(encode_offsets(offsets))
    return tmp_path


def run(statement: str, data: Path, *arguments: str) -> Result:
    """Call the tool in this process."""
    return CliRunner().invoke(sql, [statement, "--dir", str(data), *arguments])


def test_formats(data: Path) -> None:
    """A table, CSV, JSON lines."""
    statement = "select key, count(*) as n, max(timestamp) as newest from orders group by 1"
    statement += " order by key"
    assert run(statement, data).stdout.splitlines() == [
        "key n newest                   ",
        "k0  3 2026-01-01T00:04:00+00:00",
        "k1  3 2026-01-01T00:05:00+00:00",
    ]
    assert run(statement, data, "--format", "csv").stdout.splitlines() == [
        "key,n,newest",
        "k0,3,2026-01-01T00:04:00+00:00",
        "k1,3,2026-01-01T00:05:00+00:00",
    ]
    statement = "select * from orders where id = 2"
    row = json.loads(run(statement, data, "--format", "json", "--value", "json").stdout)
    assert (row["id"], row["amount"], row["offset"], row["key"]) == (2, 2.5, 2, "k0")
    wide = run('select value from "my-topic"', data, "--format", "json", "--value", "bytes")
    assert len(wide.stdout.splitlines()) == 6


def test_options(data: Path) -> None:
    """Schemas, time travel, the newest of each key."""

    def number(statement: str, *arguments: str) -> float:
        result = run(statement, data, "--format", "json", *arguments)
        assert result.exit_code == 0, result.stderr
        return float(next(iter(json.loads(result.stdout).values())))

    schema = ("--value", "json", "--value-schema", "id int, amount double")
    assert number("select sum(amount) from orders", *schema) == 18
    assert number("select count(*) from orders", "--as-of", "2026-01-01T00:02:00") == 3
    assert number("select count(*) from orders", "--latest-per-key") == 2
    assert number('select count(*) from orders a, orders b, "my-topic" c') == 216


@pytest.mark.parametrize(
    ("condition", "limits"),
    [
        ("partition = 0", {"partitions": [0]}),
        ('"offset" >= 2 and 5 > "offset"', {"start_offset": 2, "end_offset": 6}),
        ('orders."offset" between 2 and 3', {"start_offset": 2, "end_offset": 4}),
        ('"offset" = 3', {"start_offset": 3, "end_offset": 4}),
        ("timestamp >= '2026-01-01 00:01'", {"start_time": TIME + 60_000}),
        ("timestamp < timestamp '2026-01-01 00:01'", {"end_time": TIME + 60_001}),
        ('"offset" >= 2 or partition = 0', {}),
        ('value."offset" = 5', {}),
        ('not ("offset" >= 2)', {}),
        ("timestamp > now()", {}),
        ("timestamp >= '2026-01-01 13:00'::date", {"start_time": TIME}),
        ("timestamp >= '2026-01-01 00:00+02'::timestamp", {"start_time": TIME}),
        ("timestamp >= timestamptz '2026-01-01 02:00+02'", {"start_time": TIME}),
        ("timestamp >= '2026-01-01 13:00:00.9'::timestamp_s", {}),
        ('"offset" >= 5::boolean', {}),
        ('Orders."OFFSET" >= 5', {"start_offset": 5}),
        ("timestamp > 'no time'", {}),
        ('"offset" >= 1.5', {}),
    ],
)
def test_conditions_become_limits(condition: str, limits: dict[str, Any]) -> None:
    """Of one topic, joined by AND, between a column and a constant; others stay with DuckDB."""
    from ottla.tables.sql import topics_of

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'").fetchall()
    found = topics_of(connection, f"select key, id from orders where {condition}")
    assert found["orders"].limits == limits
    assert {"key", "value"} <= set(found["orders"].arguments()["columns"])


def test_columns() -> None:
    """Those that a statement names; all for a star, or where several tables are read."""
    from ottla.tables.sql import topics_of

    def columns(statement: str) -> Any:
        return topics_of(duckdb.connect(), statement)["t"].arguments().get("columns")

    assert columns("select count(*) from t") == ["offset"]
    assert columns("select o.key from t o order by o.partition") == ["partition", "key"]
    assert columns("select O.Key from t o where PARTITION = 0") == ["partition", "key"]
    assert columns("select value.key from t") == ["value"]
    assert columns("select o from t o") is None
    assert columns("select #2 from t") is None
    assert columns("select a from t o(a, b)") is None
    assert columns("select * from t") is None
    assert columns("select key from t where key in (select key from t)") is None
    assert columns("with a as (select * from t) select key from a") is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["select * from absent"], "there is no topic 'absent' in "),
        (['select * from "../../etc/passwd"'], "is no name of a topic"),
        (['select * from "t\'; drop table x; --"'], "is no name of a topic"),
        (["drop table orders"], "Only SELECT statements"),
        (["select 1; select 2"], "give one SELECT"),
        (["copy orders to 'x.csv'"], "Only SELECT statements"),
        (["select offset from orders"], 'as "offset" in double quotes'),
        (["select nothing from orders"], 'Referenced column "nothing" not found'),
        (["select * from orders", "--value", "avro"], "needs --value-schema"),
        (["select * from orders", "--value", "json", "--value-schema", "id"], "is no field"),
        (["select * from orders", "--value-schema", "id int"], "is of json and avro"),
        (["select * from orders", "--value", "json", "--value-schema", "@/none"], "cannot read"),
        (["select * from orders", "--value", "xml"], "there is no format 'xml'"),
        (["select * from orders", "--as-of", "soon"], "Invalid isoformat"),
        (["select * from orders", "--value", "long"], "value at offset 0 is not long"),
    ],
)
def test_errors_are_one_line(
    data: Path, arguments: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a stack trace."""
    monkeypatch.chdir(data)  # where a relative path names no file
    result = run(arguments[0], data, *arguments[1:])
    assert result.exit_code == 1, result.output
    assert text in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("condition", "offsets"),
    [
        ('"offset" < 5', "4"),
        ('"offset" < 4', ""),
        ('"offset" >= 5', "5"),
        ('"offset" = 3', ""),
        ("timestamp < '2026-01-01 00:04'", ""),
        ("timestamp >= '2026-01-01 00:05'", "5"),
    ],
)
def test_conditions_choose_among_the_newest(data: Path, condition: str, offsets: str) -> None:
    """A row that is not the newest of its key is none of the table."""
    statement = f'select "offset" from orders where {condition}'
    result = run(statement, data, "--latest-per-key", "--format", "csv")
    assert result.stdout.split() == ["offset", *offsets.split()]


def test_a_file_that_cannot_be_opened(data: Path) -> None:
    """The error of the system is one line, too."""
    log = data / "orders-0" / f"{0:020d}.log"
    log.rename(data / "moved")
    log.symlink_to(data / "moved")
    result = run("select * from orders", data)
    assert result.exit_code == 1
    assert "Too many levels of symbolic links" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_field_of_an_undecoded_value(data: Path) -> None:
    """The error says how the value is read."""
    result = run("select amount from orders", data)
    assert "--value json" in result.stderr
    assert "give --dir DIR" in CliRunner().invoke(sql, ["select 1"]).stderr


def test_without_the_extra(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line to install is in the error."""
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    result = run("select * from orders", data)
    assert "needs pip install '.[tables]' in Ottla's source tree" in result.stderr
