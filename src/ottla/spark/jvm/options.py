"""The options of Spark's JVM, and the arguments of SparkSubmit; secrets in a file of their own.

Kafka: KAFKA_HEAP_OPTS and KAFKA_JVM_PERFORMANCE_OPTS of bin/kafka-run-class.sh. All users of a
machine see the arguments of a process (Spark: spark.redaction.regex).
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


MEMORY = "spark.driver.memory"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
"""Spark's settings that a JVM which is already running cannot follow."""
PARALLEL_COLLECTOR = "-XX:+UseParallelGC"
OPTION_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""Where Java finds options besides its command line."""
_SIZE = re.compile(r"\d+[kmgt]?", re.IGNORECASE)


class JavaOptions(NamedTuple):
    """The options of the JVM; see `session`."""

    memory: str
    log_level: str
    fast_start: bool
    temp_dir: Path | None
    others: tuple[str, ...] = ()


def is_local(master: str) -> bool:
    """Whether a master's executors are threads of the driver."""
    return master == "local" or master.startswith("local[")


def driver_options(options: JavaOptions, config: Mapping[str, str], master: str) -> JavaOptions:
    """Return the options with those of Spark's settings; OttlaError for what Java cannot read.

    A local session, whose JVM is driver and executor in one, has the parallel collector unless the
    user names another: it needs less of the few cores that the JVM shares with Spark's Python
    processes than Java's default G1, which works at the same time.
    """
    try:
        given = shlex.split(config.get(DRIVER_OPTIONS, ""))
    except ValueError as error:
        raise OttlaError(f"{DRIVER_OPTIONS}: {error}") from error
    collector = [PARALLEL_COLLECTOR] if is_local(master) and not _names_collector(given) else []
    memory = config.get(MEMORY, options.memory)
    if not _SIZE.fullmatch(memory):
        raise OttlaError(f"{MEMORY} is a size like 512m or 2g, not {memory!r}")
    return options._replace(memory=memory, others=(*collector, *given))


def _names_collector(given: Sequence[str]) -> bool:
    """Whether the user has named a collector, or a file of options that may name one."""
    texts = [*given, *(os.environ.get(name, "") for name in OPTION_VARIABLES)]
    return any(
        re.search(r"-XX:\+Use\w*GC\b|(^|\s)@|-XX:(VMOptionsFile|Flags)=", text) for text in texts
    )


_SECRET: Final = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)
"""The names of settings whose values Spark itself does not show."""
_ESCAPED: Final = re.compile(r"[\\\s:=#!]")
_CONTROLS: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def submit_arguments(master: str | None, config: Mapping[str, str], directory: Path) -> list[str]:
    """Return the arguments of SparkSubmit for a master and settings.

    It resolves spark.jars.packages; on a cluster it distributes the files and archives. Secrets are
    written to a file in the directory, which is of no use once SparkSubmit has read it.
    """
    arguments = [] if master is None else ["--master", master]
    secrets = {name: value for name, value in config.items() if _SECRET.search(name)}
    for name, value in config.items():
        if name not in secrets:
            arguments += ["--conf", f"{name}={value}"]
    if secrets:
        path = str(_written(directory, secrets))
        arguments += ["--properties-file", path, "--load-spark-defaults"]
    return arguments


def _written(directory: Path, settings: Mapping[str, str]) -> Path:
    path = directory / "secrets.properties"
    lines = (f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
    path.touch(0o600, exist_ok=False)
    path.write_text("".join(lines), "utf-8")
    return path


def _escaped(text: str) -> str:
    """Return text as java.util.Properties reads it back."""
    return _ESCAPED.sub(lambda found: _CONTROLS.get(found[0], f"\\{found[0]}"), text)
