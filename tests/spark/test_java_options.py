"""The options of Spark's JVM: of Spark's settings, and the collector of a local session."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext

from ottla.errors import OttlaError
from ottla.spark.jvm import local_session
from ottla.spark.jvm.launching import Java, Launch
from ottla.spark.jvm.options import (
    OPTION_VARIABLES,
    PARALLEL_COLLECTOR,
    JavaOptions,
    driver_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = JavaOptions("1g", "ERROR", fast_start=False, temp_dir=None)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OPTION_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def others(config: Mapping[str, str], master: str = "local[2]") -> tuple[str, ...]:
    """Return the options besides memory and logs."""
    return driver_options(OPTIONS, config, master).others


def test_settings_of_a_driver_are_followed() -> None:
    """Spark cannot apply them to a JVM that runs, and says nothing."""
    config = {
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": "-Da='b c' -XX:+UseStringDeduplication",
    }
    found = driver_options(OPTIONS, config, "yarn")
    assert (found.memory, found.others) == ("3g", ("-Da=b c", "-XX:+UseStringDeduplication"))
    assert driver_options(OPTIONS, {}, "yarn").memory == "1g"


def test_a_local_session_has_the_parallel_collector() -> None:
    """The driver of a cluster runs no tasks: Java chooses."""
    assert others({}) == (PARALLEL_COLLECTOR,)
    assert others({}, "yarn") == ()
    assert others({"spark.driver.extraJavaOptions": "-Da=b"}) == (PARALLEL_COLLECTOR, "-Da=b")


@pytest.mark.parametrize("chosen", ["-XX:+UseG1GC", "-XX:+UseZGC", "-Da=b -XX:+UseSerialGC"])
def test_the_collector_of_the_user_is_kept(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java refuses to start with two of them."""
    assert others({"spark.driver.extraJavaOptions": chosen}) == tuple(chosen.split())
    monkeypatch.setenv("JDK_JAVA_OPTIONS", chosen)
    assert others({}) == ()


def test_a_file_of_options_may_name_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is Java's to read."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Da=b @options.txt")
    assert others({}) == ()


def test_an_open_quote_is_an_error_of_one_line() -> None:
    """A command shows errors of this project in one line, others with their stack trace."""
    with pytest.raises(OttlaError, match=r"spark\.driver\.extraJavaOptions: No closing quotation"):
        driver_options(OPTIONS, {"spark.driver.extraJavaOptions": '"-Da=b'}, "local[2]")


@pytest.mark.parametrize("option", ["-XX:VMOptionsFile=options", "-XX:Flags=options"])
def test_a_file_of_options_may_name_the_collector(option: str) -> None:
    """Java does not start with two collectors."""
    given = driver_options(OPTIONS, {"spark.driver.extraJavaOptions": option}, "local[2]")
    assert given.others == (option,)


def test_a_java_that_cannot_be_started_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of secrets among them; the error is one of one line."""
    java = tmp_path / "java"
    java.touch(0o644)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(local_session, "find_java", lambda: Java(java, 17))
    secret = {"spark.hadoop.fs.s3a.secret.key": "a-secret"}
    with pytest.raises(OttlaError, match=r"^Java could not be started: .*Permission denied"):
        local_session._start_java(OPTIONS, secret, "local[1]", class_cache=False)
    assert list(temporary.iterdir()) == []


def test_an_interrupt_while_the_jvm_is_made_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs by then, and `stop_java` does not know it."""
    made: list[subprocess.Popen[bytes]] = []

    def interrupted(*_: Any, **__: Any) -> Launch:
        made.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(local_session, "find_java", lambda: Java(Path(sys.executable), 17))
    monkeypatch.setattr(local_session, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        local_session._start_java(OPTIONS, {}, "local[1]", class_cache=False)
    assert made[0].wait(60) == -signal.SIGKILL


def test_a_jvm_that_is_ending_can_be_ended_by_force(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By a second signal, while the first one's stop waits for it."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        monkeypatch.setattr(local_session, "_launched", [Launch(process, tmp_path)])
        for name in ("_gateway", "_jvm"):
            monkeypatch.setattr(SparkContext, name, None)
        before = signal.signal(signal.SIGALRM, lambda *_: local_session.stop_java(timeout=0))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        start_s = time.monotonic()
        local_session.stop_java(timeout=200)
        assert time.monotonic() - start_s < 200
        signal.signal(signal.SIGALRM, before)
        assert process.returncode == -signal.SIGKILL
    assert local_session._launched == []


def test_settings_that_a_running_session_ignores_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark returns the session that there is, and says nothing."""

    class Conf:
        def get(self, name: str, default: str | None) -> str | None:
            return {"spark.sql.a": "1", "spark.driver.memory": "4g"}.get(name, default)

    context = SimpleNamespace(getConf=lambda: {"spark.master": "local[2]"})
    spark: Any = SimpleNamespace(conf=Conf(), sparkContext=context)
    local_session._warn_of_ignored(spark, {"spark.master": "local[2]", "spark.sql.a": "1"})
    assert not caplog.records
    given = {"spark.master": "local[4]", "spark.sql.a": "1", "spark.driver.memory": "4g"}
    local_session._warn_of_ignored(spark, given)
    assert "without effect are spark.master=local[4], spark.driver.memory=4g; end it" in caplog.text


@pytest.mark.parametrize(("error", "is_printed"), [(EOFError(), False), (ValueError(), True)])
def test_the_end_of_the_jvm_is_no_error_of_accumulators(
    error: Exception, *, is_printed: bool
) -> None:
    """PySpark's server of them may find the closed connection first; other errors are printed."""
    printed: list[object] = []
    server = SimpleNamespace(handle_error=lambda *request: printed.append(request))
    context: Any = SimpleNamespace(_accumulatorServer=server)
    local_session._pass_over_closed_connections(context)
    try:
        raise error
    except type(error):
        server.handle_error("request", "address")
    assert bool(printed) is is_printed
