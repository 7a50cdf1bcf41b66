"""The log's file: rotated by size, watched for logrotate, with warnings still on standard error."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ottla.cli.commands.server_start import server_start
from ottla.config.log_lines import TRACE, LoggingSettings
from ottla.server.logging.lines import configure_logging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Put loggers back as they were, and close the files."""
    names = ("ottla", "uvicorn", "ottla.groups")
    before = [
        (one := logging.getLogger(name), one.handlers[:], one.propagate, one.level)
        for name in names
    ]
    yield
    for logger, handlers, propagate, level in before:
        for handler in logger.handlers:
            handler.close()
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def configure(path: Path, **settings: str) -> logging.Logger:
    """Configure a log file; return the logger of nodes."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    configure_logging(LoggingSettings.parse({"log.file": str(path), **given}))
    return logging.getLogger("ottla.node")


def test_the_file_has_all_and_standard_error_the_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator who reads the terminal misses no fault."""
    path = tmp_path / "server.log"
    log = configure(path)
    log.info("all is well")
    log.warning("look here; do this")
    text = path.read_text()
    assert "INFO ottla.node all is well" in text
    assert "WARNING ottla.node look here; do this" in text
    err = capsys.readouterr().err
    assert "all is well" not in err
    assert "look here" in err


def test_the_file_is_rotated_by_size(tmp_path: Path) -> None:
    """As many old files stay as are asked for, the newest as FILE.1."""
    path = tmp_path / "server.log"
    log = configure(path, log_file_max_bytes="400", log_file_backups="2")
    for number in range(30):
        log.info("line %d", number)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "server.log",
        "server.log.1",
        "server.log.2",
    ]
    assert "line 29" in path.read_text()
    assert all(one.stat().st_size <= 400 for one in tmp_path.iterdir())


def test_a_file_that_logrotate_moves_is_opened_again(tmp_path: Path) -> None:
    """With log.file.max.bytes=0 another program rotates."""
    path = tmp_path / "server.log"
    log = configure(path, log_file_max_bytes="0")
    log.info("before")
    path.rename(tmp_path / "server.log-20260101")
    log.info("behind")
    assert "behind" in path.read_text()
    assert "before" not in path.read_text()


def test_levels_of_components_are_set(tmp_path: Path) -> None:
    """The level of a component holds whatever that of the others is."""
    path = tmp_path / "server.log"
    configure(path, log_level="ERROR,groups=TRACE", log_format="json")
    logging.getLogger("ottla.groups").log(TRACE, "every step")
    logging.getLogger("ottla.node").info("not said")
    assert '"level": "TRACE", "logger": "ottla.groups", "message": "every step"' in path.read_text()
    assert "not said" not in path.read_text()


def test_flags_that_are_wrong_are_refused_in_a_line(tmp_path: Path) -> None:
    """A level, a component and a file that cannot be had: one line, no traceback."""
    runner = CliRunner(env={"OTTLA_LOG_LEVEL": None})
    told = runner.invoke(server_start, ["--log-level", "LOUD", "--check"])
    assert told.output == (
        "Error: Invalid value LOUD for configuration log.level: 'LOUD' is no log level; levels "
        "are TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF (--override)\n"
    )
    told = runner.invoke(server_start, ["--log-file", str(tmp_path / "no" / "file")])
    assert told.output == (
        f"Error: cannot write the log file {tmp_path}/no/file: No such file or directory; choose "
        "another --log-file or make its directory writable\n"
    )


def test_flags_give_levels_one_by_one(tmp_path: Path) -> None:
    """--log-level may be repeated; --check only reads it."""
    arguments = ["--log-level", "WARN", "--log-level", "groups=DEBUG", "--check"]
    told = CliRunner().invoke(server_start, arguments)
    assert told.output == "The configuration is valid.\n"


def test_text_is_for_people_by_default(tmp_path: Path) -> None:
    """One line: time, level, component, message and fields."""
    stream = io.StringIO()
    log = configure(tmp_path / "server.log")
    handler = logging.getLogger("ottla").handlers[1]
    assert isinstance(handler, logging.StreamHandler)
    old = handler.setStream(stream)
    assert old is not None
    old.close()
    log.info("started in %d ms", 12, extra={"event": "node.started"})
    assert stream.getvalue()[24:] == (' INFO ottla.node started in 12 ms event="node.started"\n')
