"""`ottla connect new`: write a package with a connector that passes its own tests.

Kafka: none.
"""

from __future__ import annotations

import keyword
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from ottla.cli.options.flags import version_option

EXAMPLES = """
\b
Examples:
  ottla connect new source weather
  ottla connect new sink audit-log --directory connectors
\b
The package is in a new directory of its name. Its README says how to test, install and run it;
docs/writing-connectors.md is the guide.
"""
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME_MAX: Final = 60


@click.group("connect", epilog=EXAMPLES)
def connect() -> None:
    """Write connectors."""


@connect.command("new", epilog=EXAMPLES)
@version_option
@click.argument("kind", type=click.Choice(["source", "sink"]))
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="Where the directory of the package is made; by default the current one.",
)
def new(kind: str, name: str, directory: Path) -> None:
    """Write a package with a connector: settings, class, tests and README.

    NAME has small letters, digits and single hyphens, as audit-log; it is the name of the
    package, of its directory and of the connector in `connector.class`.
    """
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > _NAME_MAX:
        raise click.ClickException(
            f"the name must have small letters, digits and single hyphens, as audit-log, at most "
            f"{_NAME_MAX}: {name[:80]!r}"
        )
    spec = None if keyword.iskeyword(module) else find_spec(module)
    # a directory here without a module's file has a specification, too, without an origin
    if keyword.iskeyword(module) or module == "tests" or (spec is not None and spec.origin):
        raise click.ClickException(
            f"{name} is a name of Python or of a package; choose another one"
        )
    target = directory / name
    try:
        target.mkdir()
        for path, text in _files(kind, name, module).items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text, encoding="utf-8")
    except FileExistsError:
        raise click.ClickException(f"{target} exists; nothing was written") from None
    except OSError as error:
        raise click.ClickException(f"cannot write {target}: {error.strerror}") from error
    click.echo(f"Wrote {target}; next: cd {target} && python -m pytest")


def _files(kind: str, name: str, module: str) -> dict[str, str]:
    class_name = "".join(part.capitalize() for part in name.split("-")) + kind.capitalize()
    classes, tests, settings = _PARTS[kind]
    texts = {
        "pyproject.toml": _PROJECT,
        "README.md": _README,
        f"{name}.properties": _PROPERTIES + settings,
        f"src/{module}/__init__.py": classes,
        f"src/{module}/py.typed": "",
        f"tests/test_{module}.py": tests,
    }
    words = {"@NAME@": name, "@MODULE@": module, "@CLASS@": class_name, "@KIND@": kind}
    for word, value in words.items():
        texts = {path: text.replace(word, value) for path, text in texts.items()}
    return texts


_PROJECT: Final = """\
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"

[project]
name = "@NAME@"
version = "0.1.0"
description = "A @KIND@ for Kafka Connect"
requires-python = ">=3.11"
dependencies = ["ottla"]

[project.entry-points."ottla.connectors"]
@NAME@ = "@MODULE@:@CLASS@"

[tool.setuptools.packages.find]
where = ["src"]

[tool.pytest.ini_options]
pythonpath = ["src"]
testpaths = ["tests"]
"""
_README: Final = """\
# @NAME@

A @KIND@ for Kafka Connect, run by Ottla's workers.

Test it, without a broker:

    python -m pytest

Install it where the worker runs, and start a worker with it:

    pip install .
    ottla connect-standalone worker.properties @NAME@.properties

The class is in `src/@MODULE@/__init__.py`. Ottla's docs/writing-connectors.md explains its methods,
docs/connect.md the worker's file.
"""
_PROPERTIES: Final = """\
name=@NAME@
connector.class=@NAME@
tasks.max=1
"""
_SOURCE: Final = '''\
"""A source for Kafka Connect: the lines of the files in a directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.config.definition import ConfigDefinitions, Type
from ottla.connect import Record, Source


class @CLASS@(Source):
    """Reads the lines of each file; a file is a partition, which the tasks share."""

    version = "0.1.0"
    definitions = ConfigDefinitions().define(
        "directory", Type.STRING, doc="The directory whose files are read."
    )

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """Return what can be read apart; the list is taken when the connector starts."""
        directory = Path(self.settings["directory"])
        return [{"file": it.name} for it in sorted(directory.iterdir()) if it.is_file()]

    def read(
        self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None
    ) -> Iterator[Record]:
        """Yield what follows the offset; each record carries the offset after it."""
        position = 0 if offset is None else offset["position"]
        with (Path(self.settings["directory"]) / partition["file"]).open("rb") as file:
            file.seek(position)
            for line in file:
                if not line.endswith(b"\\n"):
                    return  # it is being written: read it next time
                position += len(line)
                text = line.decode(errors="replace").rstrip("\\r\\n")
                yield Record(text, offset={"position": position}, key=partition["file"])
'''
_SOURCE_TESTS: Final = '''\
"""The source, without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from @MODULE@ import @CLASS@
from ottla.config.problems import ConfigErrors
from ottla.testing.connect import check_restarts, collect


def test_a_restart_after_any_record_loses_and_doubles_none(tmp_path: Path) -> None:
    """`check_restarts` stops after each record and goes on from its offset."""
    (tmp_path / "a.txt").write_text("tea\\nmilk\\n")
    (tmp_path / "b.txt").write_text("bread\\n")
    records = check_restarts(@CLASS@, {"topic": "lines", "directory": str(tmp_path)})
    assert sorted((it.key, it.value) for it in records) == [
        ("a.txt", "milk"),
        ("a.txt", "tea"),
        ("b.txt", "bread"),
    ]


def test_a_line_without_its_end_waits(tmp_path: Path) -> None:
    """It comes once it is whole."""
    config = {"topic": "lines", "directory": str(tmp_path)}
    file = tmp_path / "a.txt"
    file.write_text("tea\\nmi")
    first = collect(@CLASS@, config)
    file.write_text("tea\\nmilk\\n")
    second = collect(@CLASS@, config, after=first)
    assert [it.value for it in [*first, *second]] == ["tea", "milk"]


def test_settings_are_checked() -> None:
    """A missing setting is named."""
    with pytest.raises(ConfigErrors, match="directory"):
        collect(@CLASS@, {"topic": "lines"})
'''
_SINK: Final = '''\
"""A sink for Kafka Connect: values to the rows of an SQLite database, each once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from ottla.config.definition import ConfigDefinitions, Type
from ottla.connect import Sink
from ottla.connect.records import SinkRecord
from ottla.types import TopicPartition

_TABLES = """
CREATE TABLE IF NOT EXISTS records (topic TEXT, value TEXT);
CREATE TABLE IF NOT EXISTS offsets (part TEXT PRIMARY KEY, following INTEGER);
"""


class @CLASS@(Sink):
    """Writes data and offsets in one transaction, and goes on from its own offsets."""

    version = "0.1.0"
    definitions = ConfigDefinitions().define(
        "file", Type.STRING, doc="The file of the database; it is made if it is missing."
    )

    def write(self, records: Sequence[SinkRecord]) -> None:
        """Write a batch; any exception but RetriableException fails the task."""
        following = {f"{it.topic}-{it.partition}": it.offset + 1 for it in records}
        with closing(self._open()) as database, database:
            database.executemany(
                "INSERT INTO records VALUES (?, ?)", [(it.topic, str(it.value)) for it in records]
            )
            database.executemany(
                "INSERT OR REPLACE INTO offsets VALUES (?, ?)", list(following.items())
            )

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return where to go on, as this database has it; None for a new partition."""
        part = f"{partition.topic}-{partition.partition}"
        with closing(self._open()) as database:
            rows = database.execute("SELECT following FROM offsets WHERE part = ?", [part])
            row = rows.fetchone()
        return None if row is None else int(row[0])

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.settings["file"])
        database.executescript(_TABLES)
        return database
'''
_SINK_TESTS: Final = '''\
"""The sink, without a broker."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from @MODULE@ import @CLASS@
from ottla.config.problems import ConfigErrors
from ottla.testing.connect import SinkRun


def values(file: Path) -> list[str]:
    """Return the values in the database."""
    with closing(sqlite3.connect(file)) as database:
        return [it for (it,) in database.execute("SELECT value FROM records ORDER BY rowid")]


def test_a_restart_loses_and_doubles_none(tmp_path: Path) -> None:
    """A task that is killed before its commit gets its records again."""
    file = tmp_path / "records.db"
    run = SinkRun(@CLASS@, {"file": str(file)})
    run.write(["tea", "milk"])
    run.restart()
    run.write(["bread"])
    run.close()
    assert values(file) == ["tea", "milk", "bread"]


def test_partitions_have_offsets_of_their_own(tmp_path: Path) -> None:
    """Two partitions, and a restart."""
    file = tmp_path / "records.db"
    run = SinkRun(@CLASS@, {"file": str(file)})
    run.write(["tea"], partition=0)
    run.write(["milk", "salt"], partition=1)
    run.restart()
    run.write(["bread"], partition=0)
    run.close()
    assert values(file) == ["tea", "milk", "salt", "bread"]


def test_settings_are_checked() -> None:
    """A missing setting is named."""
    with pytest.raises(ConfigErrors, match="file"):
        SinkRun(@CLASS@, {})
'''
_PARTS: Final = {
    "source": (_SOURCE, _SOURCE_TESTS, "topic=@NAME@\ndirectory=data\n"),
    "sink": (_SINK, _SINK_TESTS, "topics=lines\nfile=@NAME@.db\n"),
}
"""By kind: the module, its tests, and the settings of its own."""
