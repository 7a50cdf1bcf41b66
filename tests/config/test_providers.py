"""Values from files, directories and the environment (`config.providers`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.settings import PRODUCER, read_settings
from ottla.config.environment import NOTHING
from ottla.config.problems import ConfigErrors
from ottla.config.providers import resolve
from ottla.errors import ConfigError
from ottla.server.node.settings import ConfigFile, node_settings

if TYPE_CHECKING:
    from pathlib import Path

CLASSES = "org.apache.kafka.common.config.provider."
PROVIDERS = {
    "config.providers": "file,dir,env",
    "config.providers.file.class": f"{CLASSES}FileConfigProvider",
    "config.providers.dir.class": f"{CLASSES}DirectoryConfigProvider",
    "config.providers.env.class": f"{CLASSES}EnvVarConfigProvider",
    "config.providers.env.param.allowlist.pattern": "OWN_.*",
}
ENVIRON = {"OWN_SECRET": "from the environment", "PATH": "/bin"}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """Make a properties file, and a directory with one file for each secret."""
    (tmp_path / "own.properties").write_text("password=from a file\nother=1\n")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "token").write_text("from a directory")
    (tmp_path / "outside").write_text("not this one")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${file:%s/own.properties:password}", "from a file"),
        ("<${file:%s/own.properties:other}${env:OWN_SECRET}>", "<1from the environment>"),
        ("${dir:%s/inside:token}", "from a directory"),
        ("${file:%s/own.properties:absent}", "${file:%s/own.properties:absent}"),
        ("${dir:%s/inside:../outside}", "${dir:%s/inside:../outside}"),
        ("${env:PATH}", "${env:PATH}"),
        ("${other:%s:key}", "${other:%s:key}"),
        ("${without", "${without"),
    ],
)
def test_variables_are_replaced(secrets: Path, text: str, value: str) -> None:
    """What a provider does not have stays as it is, as in Kafka."""
    given = {**PROVIDERS, "x": text.replace("%s", str(secrets))}
    found = resolve(given, ENVIRON)
    assert (found.values["x"], found.problems) == (value.replace("%s", str(secrets)), [])


def test_only_allowed_paths_are_read(secrets: Path) -> None:
    """Also through a link and by `..`; a directory that is not there is a problem."""
    (secrets / "inside" / "link").symlink_to(secrets / "own.properties")
    given = {**PROVIDERS, "config.providers.file.param.allowed.paths": str(secrets / "inside")}
    for name in ("own.properties", "inside/../own.properties", "inside/link"):
        text = f"${{file:{secrets}/{name}:password}}"
        assert resolve({**given, "x": text}, {}).values["x"] == text
    for path in ("/absent-directory", "relative"):
        wrong = {**PROVIDERS, "config.providers.file.param.allowed.paths": path}
        assert f"Path {path}" in resolve(wrong, {}).problems[0].message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config.providers.file.class": "com.example.Own"}, "is none of"),
        ({"config.providers.env.param.allowlist.pattern": "("}, "is no pattern"),
        (
            {"x": "${env:path:KEY}"},
            "Path is not supported for EnvVarConfigProvider, invalid value 'path'",
        ),
        ({"x": "${file:/absent-file:KEY}"}, "Could not read properties from file /absent-file"),
        ({"x": "${dir:/proc/self:mem}"}, "Could not read file /proc"),
    ],
)
def test_what_cannot_be_resolved_is_named(changes: dict[str, str], message: str) -> None:
    """No class is loaded by its name."""
    (problem,) = resolve({**PROVIDERS, **changes}, ENVIRON).problems
    assert message in problem.message


def test_files_that_are_none_are_problems(tmp_path: Path) -> None:
    """A pipe is not waited for, a malformed file shows no line, braces are no pattern."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "malformed").write_text("x=canary\\uZZ\n")
    (tmp_path / "{0").write_bytes(b"\xff")
    for text, message in (
        (f"file:{tmp_path}/pipe:x", "pipe: not a regular file"),
        (f"file:{tmp_path}/malformed:x", "malformed: Malformed \\uxxxx encoding in line 1"),
        (f"dir:{tmp_path}:{{0", "is no text in UTF-8"),
        ("file:/a\0b:x", "null byte"),
    ):
        (problem,) = resolve({**PROVIDERS, "x": f"${{{text}}}"}, {}).problems
        assert message in problem.message
        assert "canary" not in problem.message


def test_without_providers_nothing_is_read() -> None:
    """A value that looks like a variable is a value."""
    assert resolve({"x": "${file:/etc/passwd:root}"}, {}).values == {
        "x": "${file:/etc/passwd:root}"
    }


def test_a_node_resolves_its_own_file(secrets: Path) -> None:
    """Its settings have the values; a problem names the line."""
    head = "".join(f"{name}={text}\n" for name, text in PROVIDERS.items())
    head += "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
    head += "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
    head += "controller.quorum.bootstrap.servers=localhost:9093\nlog.dirs=/nowhere\n"
    line = f"delegation.token.secret.key=${{dir:{secrets}/inside:token}}\n"
    settings = node_settings(ConfigFile("own.properties", head + line), {}, environment=NOTHING)
    secret: Any = settings.config.delegation_token_secret_key
    assert secret.reveal() == "from a directory"
    with pytest.raises(ConfigErrors, match=r"absent.*own\.properties:12"):
        node_settings(ConfigFile("own.properties", head + line.replace("dir:", "file:/absent")), {})


def test_a_client_resolves_its_settings(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By dotted names and by keywords."""
    monkeypatch.setenv("OWN_SECRET", "from the environment")
    given = {**PROVIDERS, "sasl.password": "${env:OWN_SECRET}", "client.id": "c"}
    settings = read_settings(PRODUCER, given, {"sasl_username": f"${{dir:{secrets}/inside:token}}"})
    assert settings.sasl_password.reveal() == "from the environment"
    assert settings.sasl_username == "from a directory"
    assert "from the environment" not in repr(vars(settings))
    with pytest.raises(ConfigError, match="is none of"):
        read_settings(PRODUCER, {**given, "config.providers.env.class": "os.system"}, {})
