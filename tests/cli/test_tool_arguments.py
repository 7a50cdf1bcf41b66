"""Arguments that all tools parse alike: repeated options, numbers of Java's sizes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ottla.cli.commands.delete_records import parse_offsets
from ottla.cli.commands.leader_election import parse_partitions
from ottla.cli.main import main
from ottla.cli.options.joptsimple import java_integer
from ottla.cli.options.json_files import read_json
from ottla.cli.output.failures import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOWHERE = ("--bootstrap-server", "127.0.0.1:1")


def _call(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Call a tool that must end with status 1; return its standard error."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("tool", "option"),
    [
        ("topics --delete", "topic"),
        ("console-producer", "topic"),
        ("console-consumer", "group"),
        ("get-offsets", "topic"),
        ("consumer-groups --reset-offsets", "from-file"),
        ("configs --alter --topic t", "add-config"),
        ("leader-election", "topic"),
    ],
)
def test_a_second_value_is_refused(
    tool: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A repeated single-value option is refused: one value would be lost silently."""
    words = (*tool.split(), *NOWHERE, f"--{option}", "a=1", f"--{option}=b=2")
    said = _call(capsys, *words)
    assert f"Found multiple arguments for option {option}, but you asked for only one" in said


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            "topics --create --topic t --partitions 99999999999",
            "Cannot parse argument '99999999999' of option partitions",
        ),
        (
            "leader-election --partition 2147483648",
            "Cannot parse argument '2147483648' of option partition",
        ),
        (
            "consumer-groups --reset-offsets --group g --topic t --to-offset 9223372036854775808",
            "Cannot parse argument '9223372036854775808' of option to-offset",
        ),
        ("console-consumer --topic t --partition 1_0", "'1_0' of option partition"),
        (
            "cluster unregister --id 99999999999",
            "argument --id/-i: could not convert '99999999999' to Integer",
        ),
        (
            "get-offsets --time 99999999999999999999",
            "Malformed time argument 99999999999999999999.",
        ),
        ("get-offsets --partitions 99999999999", "a comma separated list of numeric partition"),
        ("get-offsets --topic-partitions t:0-99999999999", 'For input string: "99999999999"'),
    ],
)
def test_numbers_too_large_are_refused(
    arguments: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number outside Java's range is refused before a request is sent."""
    assert problem in _call(capsys, *arguments.split(), *NOWHERE)


def test_levels_of_features_are_shorts(capsys: pytest.CaptureFixture[str]) -> None:
    """A feature's level has 16 bits."""
    said = _call(capsys, "features", *NOWHERE, "upgrade", "--feature", "group.version=40000")
    assert "unable to parse 40000 as a short." in said


@pytest.mark.parametrize("text", ["", "x", "1_0", " 1", "٣", "1.0", "32768", "-32769"])
def test_what_is_no_number(text: str) -> None:
    """Java accepts signs and the digits 0 to 9, and no number outside its range."""
    with pytest.raises(ValueError, match="For input string"):
        java_integer(text, 16)


def test_the_ends_of_a_size() -> None:
    """The limits of the range are accepted."""
    assert (java_integer("-32768", 16), java_integer("+32767", 16)) == (-32768, 32767)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("[1]", "Expected JSON object, received [1]"),
        ("null", "Expected JSON object, received null"),
        ('{"partitions": 5}', "Expected JSON array, received 5"),
        ('{"partitions": {"a": 1}}', 'Expected JSON array, received {"a":1}'),
        ('{"partitions": [null]}', "Expected JSON object, received null"),
        ('{"partitions": [{"topic": ["x"]}]}', 'Expected `String` value, received ["x"]'),
        (
            '{"partitions": [{"topic": "t", "partition": "0"}]}',
            'Expected `Integer` value, received "0"',
        ),
        (
            '{"partitions": [{"topic": "t", "partition": true}]}',
            "Expected `Integer` value, received true",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 2147483648}]}',
            "Expected `Integer` value, received 2147483648",
        ),
    ],
)
@pytest.mark.parametrize("parse", [parse_offsets, parse_partitions])
def test_files_of_json_of_another_shape(
    parse: Callable[[object], object], document: str, problem: str
) -> None:
    """JSON values of a wrong type are refused with Kafka's text."""
    with pytest.raises(ToolError) as refused:
        parse(json.loads(document))
    assert str(refused.value) == problem


def test_offsets_have_64_bits() -> None:
    """An offset outside 64 bits is refused before a request is sent."""
    entry = {"topic": "t", "partition": 0, "offset": 1 << 63}
    with pytest.raises(ToolError, match="Expected `Long` value, received 9223372036854775808"):
        parse_offsets({"partitions": [entry]})


def test_json_of_any_depth(tmp_path: Path) -> None:
    """Deeply nested brackets are invalid JSON instead of a RecursionError."""
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000)
    with pytest.raises(ToolError, match="The input string is not a valid JSON"):
        read_json(str(file))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            "cluster cluster-id --boot=h:1",
            "ambiguous option: --boot could match --bootstrap-controller, --bootstrap-server",
        ),
        (
            "metadata-quorum --bootstrap h:1 describe",
            "ambiguous option: --bootstrap could match --bootstrap-controller, --bootstrap-server",
        ),
        (
            "metadata-quorum --bootstrap-s h:1 rem --controller- 1",
            "--controller- could match --controller-directory-id, --controller-id",
        ),
        ("features d", "ambiguous command: d could match describe, disable, downgrade"),
        ("storage f", "ambiguous command: f could match feature-dependencies, format"),
        (
            "verifiable-producer --to t --m 1",
            "ambiguous option: --m could match --max-messages, --message-create-time",
        ),
        ("verifiable-producer --topic t --max-mess x", "argument --max-messages: could not"),
        ("producer-perf-test --topic t --nu 1 --th a", "argument --throughput: could not convert"),
        (
            "producer-perf-test --num 1 --thr 1 --to t --record-s 1 --command-prop a b",
            "Invalid property: a",
        ),
        ("cluster unreg --i x", "argument --id/-i: could not convert 'x' to Integer"),
        ("cluster x", "invalid choice: 'x' (choose from 'cluster-id', 'health', 'unregister', "),
        ("topics --list --to t", "No such option '--to'"),
    ],
)
def test_begins_of_names(arguments: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tools of argparse4j accept unambiguous abbreviations and name the candidates of others."""
    assert problem in " ".join(_call(capsys, *arguments.split()).split())


def test_begins_of_names_that_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Abbreviated subcommands and options act like the complete names."""
    shown = []
    for call in ("features vers --rel 3.9", "features version-mapping --release-version=3.9"):
        main(call.split())
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != ""
