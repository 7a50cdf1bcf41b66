"""`ottla streams describe` and `run`: texts, pictures, options, errors."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.request import urlopen
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ottla.cli.commands.streams import streams
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.jvm import submission
from ottla.streams import (
    AggregationWithHeaders,
    Streams,
    ValueAndTimestamp,
    ValueTimestampHeaders,
)
from ottla.streams.errors import StreamsException
from ottla.streams.run.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROGRAM = """
from ottla.streams import StreamsBuilder

builder = StreamsBuilder()
builder.stream("in").filter(lambda key, value: value).to("out")
"""
TEXT = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [in])
      --> KSTREAM-FILTER-0000000001
    Processor: KSTREAM-FILTER-0000000001 (stores: [])
      --> KSTREAM-SINK-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Sink: KSTREAM-SINK-0000000002 (topic: out)
      <-- KSTREAM-FILTER-0000000001

"""


def test_describe_prints_the_text_of_kafka(tmp_path: Path) -> None:
    """As `Topology.describe().toString()`."""
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    found = CliRunner().invoke(streams, ["describe", str(program)])
    assert (found.exit_code, found.output) == (0, TEXT)


def test_a_query_prints_values_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the times and the headers that a store keeps with them."""
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    headers = (("h", b"1"),)
    entries = [
        ("a", ValueAndTimestamp({"n": 1}, 5)),
        ("b", ValueTimestampHeaders("ü", 5, headers)),
        ("c", AggregationWithHeaders(2, headers)),
    ]
    monkeypatch.setattr("ottla.cli.commands.streams._session", lambda *_, **__: nullcontext())
    monkeypatch.setattr("ottla.cli.commands.streams._entries", lambda *_: entries)
    arguments = ["query", str(program), "--checkpoint", str(tmp_path), "--store", "s"]
    found = CliRunner().invoke(streams, arguments)
    assert found.output == '"a"\t{"n": 1}\n"b"\t"ü"\n"c"\t2\n'


def test_a_query_whose_session_cannot_start_is_one_line(tmp_path: Path) -> None:
    """Before Java is started: a setting that cannot be read."""
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    arguments = ["query", str(program), "--checkpoint", str(tmp_path), "--store", "s"]
    found = CliRunner().invoke(streams, [*arguments, "--conf", "spark.driver.extraJavaOptions='a"])
    assert found.exit_code == 1
    assert found.output == "Error: spark.driver.extraJavaOptions: No closing quotation\n"


@pytest.mark.parametrize("options", [[], ["--verbose"]])
@pytest.mark.parametrize("step", ["session", "check_settings", "query_store"])
def test_an_error_of_spark_in_a_query_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, options: list[str]
) -> None:
    """It is made before the session ends, with the next step; --verbose shows the trace, too."""
    stopped: list[object] = []

    class OfTheJvm(PySparkException):
        def __str__(self) -> str:
            assert not stopped
            return "[CANNOT_READ_STREAMING_STATE_FILE] 1.changelog\n\tat java"

    def fail(*_: object, **__: object) -> NoReturn:
        raise OfTheJvm("")

    of_jvm = "ottla.spark.jvm.local_session"
    monkeypatch.setattr(f"{of_jvm}.session", lambda *_, **__: "spark")
    monkeypatch.setattr(f"{of_jvm}.check_settings", lambda _: None)
    monkeypatch.setattr(f"{of_jvm}.stop", stopped.append)
    module = "ottla.streams.query.stores" if step == "query_store" else of_jvm
    monkeypatch.setattr(f"{module}.{step}", fail)
    (tmp_path / "app.py").write_text(PROGRAM)
    arguments = ["query", str(tmp_path / "app.py"), "--checkpoint", str(tmp_path), "--store", "s"]
    found = CliRunner().invoke(streams, [*arguments, *options])
    *trace, line = found.output.splitlines()
    assert found.exit_code == 1
    assert line.startswith("Error: [CANNOT_READ_STREAMING_STATE_FILE] 1.changelog; ")
    assert "is to be repeated" in line
    assert bool(trace) == bool(options)
    assert stopped == ([] if step == "session" else ["spark"])


def test_describe_draws_a_picture(tmp_path: Path) -> None:
    """A box for each node."""
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    arguments = ["describe", str(program), "--svg", str(tmp_path / "app.svg")]
    assert CliRunner().invoke(streams, arguments).exit_code == 0
    root = ET.parse(tmp_path / "app.svg").getroot()
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 3


def test_a_program_without_a_topology_is_refused(tmp_path: Path) -> None:
    """The message says what is missing."""
    program = tmp_path / "app.py"
    program.write_text("")
    found = CliRunner().invoke(streams, ["describe", str(program)])
    assert found.exit_code == 2
    assert "defines neither `topology` nor `builder`" in found.output
    assert "call its StreamsBuilder `builder`" in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: b: c", "app.py, line 1: SyntaxError: invalid syntax"),
        (
            "\ndef f():\n    return 1 / 0\nf()",
            "app.py, line 3: ZeroDivisionError: division by zero",
        ),
        ("import json\njson.loads('')", "app.py, line 2: JSONDecodeError: Expecting value"),
        ("import near", "line 1: ModuleNotFoundError: No module named 'near'; install it, or give"),
    ],
    ids=["syntax", "own function", "library", "module"],
)
def test_an_error_of_the_program_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    """It names the line of the program, not those of Python and this command."""
    program = tmp_path / "app.py"
    program.write_text(text)
    found = CliRunner().invoke(streams, ["describe", str(program)])
    assert found.exit_code == 1
    (told,) = found.output.splitlines()
    assert told.startswith("Error: ")
    assert line in told


@pytest.mark.parametrize(
    "error",
    [
        PySparkException("[STREAM_FAILED] No space left on device SQLSTATE: XXKST\n\tat java"),
        OSError(28, "No space left on device"),
    ],
    ids=["of Spark", "of Python"],
)
def test_an_error_of_a_run_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Without Java's stack trace and Python's, with what to do."""

    def fail(_: Streams, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(Streams, "process_available", fail)
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    options = ["--bootstrap-server", "localhost:1", "--checkpoint", str(tmp_path), "--once"]
    found = CliRunner().invoke(streams, ["run", str(program), *options])
    assert found.exit_code == 1
    (line,) = found.output.splitlines()
    assert line.startswith("Error: ")
    assert "free space on it and start again" in line


def run(tmp_path: Path, *options: str, program: str = PROGRAM) -> Result:
    """Run a program against a cluster that is not there."""
    (tmp_path / "app.py").write_text(program)
    given = ["--bootstrap-server", "localhost:1", "--checkpoint", "checkpoint", "--once"]
    return CliRunner().invoke(streams, ["run", str(tmp_path / "app.py"), *given, *options])


def test_an_error_is_told_while_its_jvm_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of an error of Spark cannot be had once the session has been stopped."""
    is_stopped = False

    class OfTheJvm(PySparkException):
        def __str__(self) -> str:
            assert not is_stopped
            return "[STREAM_FAILED] a fault"

    def fail(_: Streams, **__: object) -> NoReturn:
        raise OfTheJvm("")

    def stop(_: Streams) -> None:
        nonlocal is_stopped
        is_stopped = True

    monkeypatch.setattr(Streams, "process_available", fail)
    monkeypatch.setattr(Streams, "stop", stop)
    found = run(tmp_path)
    assert (found.exit_code, found.output) == (1, "Error: [STREAM_FAILED] a fault\n")
    assert is_stopped


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--master", "mesos://host"], "sc://host:15002 of Spark Connect"),
        (["--master", "spark://host:7077", "--deploy-mode", "cluster"], "needs --master yarn"),
        (["--master", "yarn"], "set HADOOP_CONF_DIR"),
        (["--master", "k8s://https://host:6443"], "spark.kubernetes.container.image"),
        (["--master", "sc://host", "--archives", "a.tar.gz"], "the server has them"),
        (["--conf", "spark.executor.instances"], "--conf takes NAME=VALUE"),
        (["--conf", "=2"], "--conf takes NAME=VALUE"),
        (["--conf", "spark.driver.extraJavaOptions='a"], "No closing quotation"),
        (["--conf", "spark.driver.memory=much"], "a size like 512m or 2g, not 'much'"),
        (["--metrics", "localhost:http"], "no address: write HOST:PORT, :PORT for all interfaces"),
        (["--metrics", "65536"], "no address: write HOST:PORT, :PORT for all interfaces"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    """Before anything is started, with what to do instead."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    found = run(tmp_path, *options)
    assert found.exit_code == 2
    assert words in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("{taken}", "port {taken} of 127.0.0.1 is taken; give another port"),
        ("a..b:9405", "'a..b' is no address of this machine"),
        ("203.0.113.9:9405", "(Cannot assign requested address); give one that is, or only"),
    ],
)
def test_an_address_of_metrics_that_cannot_be_had(tmp_path: Path, address: str, line: str) -> None:
    """One line with what to do, before Spark is started; not Python's error."""
    (tmp_path / "app.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        given = ["--bootstrap-server", "localhost:1", "--checkpoint", str(tmp_path / "checkpoint")]
        options = [*given, "--metrics", address.format(taken=taken)]
        found = CliRunner().invoke(streams, ["run", str(tmp_path / "app.py"), *options])
    assert found.exit_code == 2
    told = " ".join(found.output.split()).partition("Error: ")[2]
    assert told.startswith("--metrics: ")
    assert line.format(taken=taken) in told
    assert "Errno" not in told
    assert not (tmp_path / "checkpoint").exists()


def test_spark_has_the_settings_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program imports from them, too."""
    made: list[Any] = []

    def process_available(app: Streams, **_: object) -> None:
        made.append(app)

    monkeypatch.setattr(Streams, "open", lambda _: None)
    monkeypatch.setattr(Streams, "process_available", process_available)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "near_app.py").write_text("TOPIC = 'in'")
    options = ["--py-files", str(tmp_path / "near_app.py"), "--archives", "a.tar.gz#a"]
    program = "import near_app\n" + PROGRAM
    found = run(tmp_path, *options, "--conf", "spark.cores.max=2", program=program)
    assert found.exit_code == 0, found.output
    assert made[0]._spark_config == {
        "spark.cores.max": "2",
        "spark.submit.pyFiles": str(tmp_path / "near_app.py"),
        "spark.archives": "a.tar.gz#a",
    }


def test_metrics_are_served_while_a_run_of_what_is_there_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the figures of each micro-batch."""
    served: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    def process_available(_: Streams, on_progress: Callable[[Progress], None]) -> None:
        for number in (0, 1):
            on_progress(Progress(number, 3, 1.5, 0, 0, 40, run="a"))
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            served.append(answer.read().decode())

    monkeypatch.setattr(Streams, "process_available", process_available)
    found = run(tmp_path, "--metrics", str(port))
    assert found.exit_code == 0, found.output
    assert "ottla_streams_rows_total{" in served[0]
    assert served[0].count("} 6\n") == 1
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://127.0.0.1:{port}/metrics")


@pytest.mark.parametrize(("options", "level"), [([], "OFF"), (["--verbose"], "ERROR")])
def test_spark_s_log_is_shown_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], level: str
) -> None:
    """Its stack traces of an error that is one line here."""
    levels: list[str] = []

    def process_available(app: Streams, **_: object) -> None:
        levels.append(app._log_level)

    monkeypatch.setattr(Streams, "process_available", process_available)
    assert run(tmp_path, *options).exit_code == 0
    assert levels == [level]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["start", "open"]),
        (["--conf", "spark.sql.shuffle.partitions=abc"], ["open"]),
        (["--conf", "spark.sql.shuffle.partitions=abc", "--once"], ["open"]),
    ],
)
def test_settings_that_spark_refuses_are_reported_while_the_brokers_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: list[str]
) -> None:
    """Those of the command before the brokers are asked, others of Spark before a restart."""
    steps: list[str] = []

    def start(_: Streams) -> NoReturn:
        steps.append("start")
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker of localhost:1 answers")

    def refuse(_: Streams) -> NoReturn:
        steps.append("open")
        raise PySparkException("[INVALID_CONF_VALUE] The value 'abc' is invalid.\n\tat java")

    monkeypatch.setattr(Streams, "start", start)
    monkeypatch.setattr(Streams, "process_available", start)
    monkeypatch.setattr(Streams, "open", refuse)
    (tmp_path / "app.py").write_text(PROGRAM)
    given = ["--bootstrap-server", "localhost:1", "--checkpoint", str(tmp_path)]
    found = CliRunner().invoke(streams, ["run", str(tmp_path / "app.py"), *given, *options])
    assert found.exit_code == 1
    assert found.output.endswith("Error: [INVALID_CONF_VALUE] The value 'abc' is invalid.\n")
    assert steps == expected


BATCHES = [
    Progress(0, 1200, 400.0, 30, 7, 3000, run="a"),
    Progress(1, 0, 0.0, 30, 7, 10, run="a"),
    Progress(2, 30, 10.0, 0, 8, 3000, run="a"),
    Progress(2, 30, 10.0, 0, 8, 3000, run="a"),
]
"""As an application reports them, the last one as long as it is the last one."""


def reported(_: Streams, on_progress: Callable[[Progress], None]) -> None:
    """Take the place of a run of what is there."""
    for one in BATCHES:
        on_progress(one)


def test_a_run_of_what_is_there_says_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each micro-batch with rows, into a file as well, and the sum."""
    monkeypatch.setattr(Streams, "process_available", reported)
    found = run(tmp_path)
    assert found.stdout.splitlines() == [
        "batch 0: 1,200 rows, 400 rows/s, lag 30, 7 rows of state, 3,000 ms",
        "batch 2: 30 rows, 10 rows/s, lag 0, 8 rows of state, 3,000 ms",
        "done: 1,230 rows in 2 micro-batches",
    ]


def test_progress_is_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One object a line, and nothing else."""
    monkeypatch.setattr(Streams, "process_available", reported)
    lines = [json.loads(line) for line in run(tmp_path, "--json").stdout.splitlines()]
    assert [(one["batch"], one["rows"], one["all_rows"]) for one in lines] == [
        (0, 1200, 1200),
        (2, 30, 1230),
    ]


def test_an_endless_run_writes_lines_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of the table that a terminal has."""
    batches = iter(BATCHES)

    def next_batch(_: Streams, __: Progress | None) -> list[Progress]:
        found = next(batches, None)
        if found is None:
            raise StreamsException("a wrong checkpoint")
        return [found]

    monkeypatch.setattr(Streams, "start", lambda _: None)
    monkeypatch.setattr(Streams, "await_termination", lambda _, __: False)
    monkeypatch.setattr(Streams, "progress_after", next_batch)
    (tmp_path / "app.py").write_text(PROGRAM)
    given = ["--bootstrap-server", "localhost:1", "--checkpoint", str(tmp_path)]
    found = CliRunner().invoke(streams, ["run", str(tmp_path / "app.py"), *given])
    assert found.stderr == "Error: a wrong checkpoint\n"
    assert [line.partition(":")[0] for line in found.stdout.splitlines()] == ["batch 0", "batch 2"]


def test_a_run_has_the_settings_of_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file as other tools take it, for the driver's clients too; --config wins."""
    made: list[Streams] = []

    def process_available(app: Streams, **_: object) -> None:
        made.append(app)

    monkeypatch.setattr(Streams, "process_available", process_available)
    settings = tmp_path / "client.properties"
    settings.write_text("security.protocol=SASL_SSL\nclient.id=a\nbootstrap.servers=other:1\nx=y\n")
    found = run(
        tmp_path, "--command-config", str(settings), "--config", "kafka.client.id=b",
        "--config", "maxOffsetsPerTrigger=5",
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    assert made[0]._client_config == {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SASL_SSL",
        "client.id": "b",
    }


def test_a_context_that_does_not_start_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's error, without Java's stack trace: YARN refuses an application like this."""

    def refuse(_: Streams, **__: object) -> NoReturn:
        called = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext."
        raise Py4JError(f"{called}\n: org.apache.spark.SparkException: no space\n\tat java")

    monkeypatch.setattr(Streams, "process_available", refuse)
    found = run(tmp_path, "--once")
    assert found.exit_code == 1
    assert found.output.endswith("Error: org.apache.spark.SparkException: no space\n")
    assert "Traceback" not in found.output


def test_the_cluster_is_given_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file, with the command that the driver runs; the status is that of the application."""
    given: list[Any] = []

    def submit(*arguments: Any) -> int:
        given.extend(arguments)
        return 3

    monkeypatch.setattr(submission, "submit", submit)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    setting = "spark.yarn.maxAppAttempts=1"
    options = ["--deploy-mode", "cluster", "--conf", setting, "--metrics", "9405", "--verbose"]
    found = run(tmp_path, "--master", "yarn", *options)
    assert found.exit_code == 3
    master, config, main, arguments = given
    assert (master, main.name) == ("yarn", "__main__.py")
    assert config["spark.yarn.dist.files"] == str(tmp_path / "app.py")
    command = "streams run app.py --bootstrap-server localhost:1 --checkpoint checkpoint"
    given = ["--master", "yarn", "--metrics", "127.0.0.1:9405", "--conf", setting]
    assert arguments == [*command.split(), *given, "--once", "--verbose"]
