"""The options of Spark's JVM: memory, collector, and what the user gives by Spark's settings.

Kafka: KAFKA_HEAP_OPTS and KAFKA_JVM_PERFORMANCE_OPTS of bin/kafka-run-class.sh.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

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
        re.search(r"-XX:\+Use\w*GC\b|(^|\s)@|-XX:(VMOptionsFile|Flags)=", one) for one in texts
    )
