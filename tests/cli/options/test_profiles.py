"""Where tools connect without --bootstrap-server; and what the shell completes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from ottla.cli.main import COMMANDS, SERVER_HINT, main, ottla
from ottla.cli.options.profiles import (
    FILE_VARIABLE,
    Profile,
    chosen_profile,
    defaults,
    take_profile,
)
from ottla.streams import Streams
from ottla.testing.cluster import Cluster

ROOT = Path(__file__).parents[3]
FILE = """
default = "local"
[profiles.local]
bootstrap_servers = "localhost:9092"
[profiles.production]
bootstrap_servers = "kafka1:9092,kafka2:9092"
command_config = "production.properties"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the user's file with two profiles."""
    path = tmp_path / "profiles.toml"
    path.write_text(FILE)
    monkeypatch.setenv("OTTLA_PROFILES_FILE", str(path))
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("OTTLA_PROFILE", raising=False)
    return path


def test_the_flag_wins_over_variables_and_these_over_the_file(file: Path) -> None:
    """--profile, OTTLA_BOOTSTRAP_SERVERS, OTTLA_PROFILE, then the default of the file."""
    base = {"OTTLA_PROFILES_FILE": str(file)}
    production = Profile("kafka1:9092,kafka2:9092", str(file.parent / "production.properties"))
    servers = {**base, "OTTLA_BOOTSTRAP_SERVERS": "a:1", "OTTLA_PROFILE": "local"}
    assert chosen_profile("production", servers) == production
    assert chosen_profile(None, servers) == Profile("a:1")
    assert chosen_profile(None, {**base, "OTTLA_PROFILE": "production"}) == production
    assert chosen_profile(None, base) == Profile("localhost:9092")
    assert chosen_profile(None, {"OTTLA_PROFILES_FILE": str(file.parent / "none")}) is None


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [
        (FILE, "producton", "no profile producton in {path}; did you mean production?"),
        (FILE, "xyzzy", "no profile xyzzy in {path}; add a table [profiles.xyzzy]"),
        ("[profiles.a]\nservers = ''", "a", "{path}: profile a has the unknown key servers; keys"),
        ("[profiles.a]\nbootstrap_servers = 1", "a", "{path}: bootstrap_servers of profile a must"),
        ("[profiles.a]", "a", "{path}: profile a has no bootstrap_servers"),
        ("[profiles", "a", "cannot read {path}: Expected ']'"),
        ("profiles = 3", "a", "no profile a in {path}; add a table [profiles.a]"),
    ],
)
def test_what_is_wrong_is_named(file: Path, content: str, name: str, text: str) -> None:
    """One line with the file and what to write."""
    file.write_text(content)
    with pytest.raises(click.ClickException) as told:
        chosen_profile(name, {"OTTLA_PROFILES_FILE": str(file)})
    assert told.value.message.startswith(text.format(path=file))


def test_the_flag_may_stand_anywhere() -> None:
    """Before and behind the command; not behind `--`; a missing value is an error."""
    left = ["topics", "--list"]
    assert take_profile(["--profile", "a", *left]) == ("a", left)
    assert take_profile([*left, "--profile=a"]) == ("a", left)
    assert take_profile([*left, "--", "--profile"]) == (None, [*left, "--", "--profile"])
    with pytest.raises(click.UsageError, match="requires an argument"):
        take_profile([*left, "--profile"])


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("topics --list", {"bootstrap_server", "command_config"}),
        ("topics --list --bootstrap-server a:1", {"command_config"}),
        ("topics --list --command-config f", {"bootstrap_server"}),
        ("cluster cluster-id -C a:1", {"command_config"}),
        ("producer-perf-test --producer-props bootstrap.servers=a:1", {"command_config"}),
        ("console-producer --producer.config f", {"bootstrap_server"}),
        ("metadata-quorum add-controller", {"bootstrap_server"}),
    ],
)
def test_arguments_win_over_a_profile(words: str, given: set[str]) -> None:
    """What an argument says is never replaced."""
    arguments = words.split()
    found = defaults(Profile("a:1", "file"), arguments, [arguments[0]])[arguments[0]]
    assert {name for name in found if not isinstance(found[name], dict)} == given


def test_tools_connect_without_an_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flag of a command, of a subcommand, and of the tool whose flag has another name."""
    with Cluster() as cluster:
        monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", cluster.bootstrap)
        for words in ("topics --create --topic orders", "cluster cluster-id", "features describe"):
            main(words.split())
        out = capsys.readouterr().out
        assert "Created topic orders." in out
        assert "Cluster ID: " in out
        assert "Feature: metadata.version" in out
        monkeypatch.setenv("_OTTLA_COMPLETE", "bash_complete")
        shell = ShellComplete(ottla, {}, "ottla", "_OTTLA_COMPLETE")
        completed = shell.get_completions(["topics", "--topic"], "ord")
        assert [one.value for one in completed] == ["orders"]
        assert shell.get_completions(["consumer-groups", "--group"], "") == []
        proposed = shell.get_completions([], "topi")
        assert [one.value for one in proposed] == ["topics"]


def test_completion_without_a_cluster_proposes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No error appears while a line is typed."""
    monkeypatch.setenv("_OTTLA_COMPLETE", "bash_complete")
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "nonsense")
    shell = ShellComplete(ottla, {}, "ottla", "_OTTLA_COMPLETE")
    assert shell.get_completions(["topics", "--topic"], "") == []


def test_the_line_for_the_shell_works(tmp_path: Path) -> None:
    """docs/tools.md tells bash to evaluate what the command prints."""
    tool = tmp_path / "ottla"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n')
    tool.chmod(0o755)
    line = 'eval "$(_OTTLA_COMPLETE=bash_source ottla)"'
    assert line in (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    done = subprocess.run(
        ["bash", "-c", f"{line}; complete -p ottla"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_ottla_completion ottla" in done.stdout


def test_without_any_address_tools_say_what_kafkas_say(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No default is invented."""
    file.unlink()
    for arguments, text in (
        (["topics", "--list"], "--bootstrap-server must be specified"),
        (["groups", "--list"], 'Missing required argument "[bootstrap-server]"'),
        (["cluster", "health"], "one of the arguments --bootstrap-server/-b"),
        (["transactions", "list"], "argument --bootstrap-server is required"),
        (["reassign-partitions", "--list"], "Please specify either --bootstrap-server"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        printed = capsys.readouterr().err
        assert f"Error: {text}" in printed
        assert printed.rstrip().endswith(SERVER_HINT)
    with pytest.raises(SystemExit):
        main(["topics", "--bootstrap-server", "h:1", "--create"])
    assert SERVER_HINT not in capsys.readouterr().err


def test_a_configuration_directory_that_cannot_be_read_has_no_profiles(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no error: HOME may be another user's."""

    def refuse(_path: Path) -> bool:
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.exists", refuse)
    assert chosen_profile(None, {FILE_VARIABLE: str(file)}) is None


def test_versions_are_told_in_detail(capsys: pytest.CaptureFixture[str]) -> None:
    """Compiled or not, Python and libraries; in either order of the flags."""
    texts = []
    for flags in (["--version", "--verbose"], ["--verbose", "--version"]):
        main(flags)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    lines = texts[0].splitlines()
    assert lines[0].startswith("Ottla ")
    assert any(one.startswith("modules   ") and "compiled" in one for one in lines)
    assert any(one.startswith("python    3.") for one in lines)
    assert any(one.startswith("library   cramjam ") for one in lines)


def test_every_subcommand_that_connects_takes_a_profile() -> None:
    """Subcommands have their own defaults in click."""
    groups = {name: ottla.get_command(click.Context(ottla), name) for name in COMMANDS}
    found = {
        name
        for group in groups.values()
        if isinstance(group, click.Group)
        for name, command in group.commands.items()
        if any(option.name == "bootstrap_server" for option in command.params)
    }
    of_command = defaults(Profile("a:1"), [], ["x"])["x"]
    assert {name for name in found if name not in of_command} == set()


def test_an_application_of_streams_connects_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As all other tools do."""
    found: list[Any] = []

    def process_available(app: Streams, **_: object) -> None:
        found.append(app._client_config["bootstrap.servers"])

    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "a:1,b:2")
    monkeypatch.setattr(Streams, "process_available", process_available)
    (tmp_path / "app.py").write_text(
        "from ottla.streams import StreamsBuilder\n"
        "builder = StreamsBuilder()\nbuilder.stream('in').to('out')\n"
    )
    program = str(tmp_path / "app.py")
    main(["streams", "run", program, "--checkpoint", str(tmp_path / "c"), "--once"])
    assert found == ["a:1,b:2"]
