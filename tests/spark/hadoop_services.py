"""Services of Hadoop as processes on loopback: their settings, Java, start and end."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark.jvm.launching import find_java
from tests.maven import fetched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

POM = Path(__file__).parent / "hadoop" / "pom.xml"
HOST = "127.0.0.1"
LOG = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c: %m%n
"""
START_S = 120


def write_settings(path: Path, settings: dict[str, object]) -> None:
    """Write a file of Hadoop's settings."""
    lines = [
        f"<property><name>{key}</name><value>{value}</value></property>"
        for key, value in settings.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>"]))


def java_command(settings: Path) -> list[str]:
    """Return the start of a command that runs a class of Hadoop with these settings."""
    libraries = fetched("hadoop-3.5.0", POM)
    command = [str(find_java().path), "-Xmx512m", "-XX:TieredStopAtLevel=1"]
    return [*command, "-cp", f"{settings}:{libraries}/*"]


@contextmanager
def running(java: Sequence[str], services: Sequence[str], directory: Path) -> Iterator[None]:
    """Run services until the end of the block; each has a log in the directory."""
    with ExitStack() as stack:
        for service in services:
            log = stack.enter_context((directory / f"{service}.log").open("wb"))
            process = subprocess.Popen([*java, service], stdout=log, stderr=log)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
        yield
