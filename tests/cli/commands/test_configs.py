"""`ottla configs` and `ottla client-metrics` against a scripted cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from ottla.cli.commands import client_metrics, configs
from ottla.cli.entities import Credential, parse_credential
from ottla.cli.main import main
from ottla.cli.output.failures import ToolError
from ottla.clients.admin.configs import (
    AlterOperation,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
    ResourceType,
)
from ottla.config.definition import double_text
from ottla.errors import ErrorCode, KafkaError, UnsupportedVersion
from ottla.types import Node, Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

OWN = ConfigEntry(
    "retention.ms", "5", 1, False, False, (ConfigSynonym("retention.ms", "5", 1),), 0, None
)
DEFAULT = ConfigEntry(
    "flush.ms", None, 5, True, False, (ConfigSynonym("log.flush.ms", "9", 5),), 0, None
)
REFUSAL = KafkaError(ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope")


class FakeAdmin:
    """A cluster with one topic and one broker; records requested changes."""

    def __init__(self) -> None:
        self.changed: list[Any] = []
        self.filters: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def list_topics(self) -> list[Any]:
        """Return one topic."""
        return [SimpleNamespace(name="orders")]

    def describe_cluster(self) -> Any:
        """Return one broker."""
        return SimpleNamespace(brokers=(Node(1, "h", 1),))

    def list_config_resources(self, kinds: list[ResourceType]) -> list[ConfigResource]:
        """Return one resource of each type."""
        return [ConfigResource(kind, "mine") for kind in kinds]

    def describe_configs(self, resources: list[Any], **_: bool) -> dict[Any, Any]:
        """Return one dynamic setting and one default."""
        return {one: {entry.name: entry for entry in (OWN, DEFAULT)} for one in resources}

    def alter_configs(self, changes: Mapping[Any, Any]) -> dict[Any, Any]:
        """Record changes; one name is unknown."""
        self.changed.append(changes)
        return {
            resource: REFUSAL if any(change.name == "nope" for change in given) else None
            for resource, given in changes.items()
        }

    def describe_client_quotas(self, requested: Any, *, strict: bool) -> dict[Any, Any]:
        """Return one quota."""
        self.filters.append((requested, strict))
        return {frozenset({("user", "al"), ("client-id", None)}): {"producer_byte_rate": 2e7}}

    def alter_client_quotas(self, changes: list[Any]) -> dict[Any, None]:
        """Record the changes."""
        self.changed += changes
        return dict.fromkeys([frozenset(one.entity.items()) for one in changes])

    def request(self, _request: Any) -> Any:
        """Refuse: the cluster does not support credentials."""
        raise UnsupportedVersion("The node does not support DESCRIBE_USER_SCRAM_CREDENTIALS")


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """Replace the admin client by a scripted cluster."""
    fake = FakeAdmin()
    for module in (configs, client_metrics):
        monkeypatch.setattr(module, "open_admin", lambda *_, **__: fake)
    return fake


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a tool; return its status and what it printed."""
    status: Any = 0
    try:
        main([arguments[0], "--bootstrap-server", "h:1", *arguments[1:]])
    except SystemExit as ended:
        status = ended.code or 0
    return (status, *capsys.readouterr())


@pytest.mark.usefixtures("admin")
def test_describe(capsys: pytest.CaptureFixture[str]) -> None:
    """Dynamic settings, or all; a missing resource is reported with status 0."""
    own = "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5}\n"
    _, text, _ = run(capsys, "configs", "--describe", "--topic", "orders")
    assert text == f"Dynamic configs for topic orders are:\n{own}"
    _, text, _ = run(capsys, "configs", "--describe", "--topic", "orders", "--all")
    default = "  flush.ms=null sensitive=true synonyms={DEFAULT_CONFIG:log.flush.ms=9}\n"
    assert text == f"All configs for topic orders are:\n{default}{own}"
    assert run(capsys, "configs", "--describe", "--topic", "no")[:2] == (
        0,
        "The topic 'no' doesn't exist and doesn't have dynamic config.\n",
    )
    _, text, _ = run(capsys, "configs", "--describe", "--entity-type", "brokers")
    assert text == (
        "Dynamic configs for broker 1 are:\nDefault configs for brokers in the cluster are:\n"
    )


def test_alter(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings are set and removed in one request; a refusal has Kafka's two lines."""
    flags = ("--add-config", "a=1,b=[x,y]", "--delete-config", "c,d")
    status, text, _ = run(capsys, "configs", "--alter", "--topic", "orders", *flags)
    assert (status, text) == (0, "Completed updating config for topic orders.\n")
    assert admin.changed == [
        {
            ConfigResource(ResourceType.TOPIC, "orders"): [
                ConfigChange("a", "1"),
                ConfigChange("b", "x,y"),
                ConfigChange("c", None, AlterOperation.DELETE),
                ConfigChange("d", None, AlterOperation.DELETE),
            ]
        }
    ]
    call = ("configs", "--alter", "--topic", "orders", "--add-config", "nope=1")
    status, _, text = run(capsys, *call)
    assert status == 1
    assert text == (
        "Error while executing config command with args '--bootstrap-server h:1 "
        f"{' '.join(call[1:])}'\n"
        "org.apache.kafka.common.errors.InvalidConfigurationException: "
        "Unknown topic config name: nope\n"
    )


def test_settings_from_a_file(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """--add-config-file reads properties; a missing file is named."""
    (tmp_path / "f").write_text("a = 1\nb=2,3\n")
    run(capsys, "configs", "--alter", "--broker-defaults", "--add-config-file", f"{tmp_path}/f")
    changes = [ConfigChange("a", "1"), ConfigChange("b", "2,3")]
    assert admin.changed == [{ConfigResource(ResourceType.BROKER, ""): changes}]
    status, _, text = run(
        capsys, "configs", "--alter", "--topic", "t", "--add-config-file", f"{tmp_path}/none"
    )
    assert (status, text.splitlines()[1]) == (
        1,
        f"java.nio.file.NoSuchFileException: {tmp_path}/none",
    )


def test_quotas(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Names belong to types in the order of the flags; numbers are written as Java does."""
    users = ("--entity-type", "users", "--entity-name", "al")
    clients = ("--entity-type", "clients", "--entity-default")
    status, text, _ = run(capsys, "configs", "--describe", *users, *clients)
    assert status == 0
    assert text == (
        "Quota configs for user-principal 'al', the default client-id are "
        "producer_byte_rate=2.0E7\n"
    )
    assert admin.filters == [({"user": "al", "client-id": None}, True)]
    status, text, _ = run(
        capsys, "configs", "--alter", "--user", "al", "--client-defaults",
        "--add-config", "request_percentage=50", "--delete-config", "producer_byte_rate",
    )  # fmt: skip
    assert (status, text) == (0, "Completed updating config for user al.\n")
    change = admin.changed[0]
    assert change.entity == {"user": "al", "client-id": None}
    assert change.limits == {"request_percentage": 50.0, "producer_byte_rate": None}


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--alter --user al --delete-config request_percentage", "Invalid config(s): request_"),
        ("--alter --user al --add-config x=1", "Unexpected config names: Set(x)"),
        ("--alter --ip 10.0.0.1 --add-config x=1", "Only connection quota configs can be added"),
        ("--alter --user al --add-config producer_byte_rate=x", "Cannot parse quota"),
        ("--describe --ip not..valid", "must be a valid IP or resolvable host"),
        ("--describe --broker x", "must be a valid integer broker id"),
        ("--describe --topic t --broker 1", "Only 'users' and 'clients' entity types"),
        ("--alter --topic t --add-config a", "requirement failed: Invalid entity config"),
        ("--alter --topic t --add-config a%=1", "Invalid character found for config key: a%"),
        ("--describe --entity-type broker-loggers", "An entity name must be specified with"),
        ("--alter --broker-logger 1 --add-config no=INFO", "Invalid broker logger(s): no"),
        ("--desribe --topic t", "No such option '--desribe'. Did you mean '--describe'?"),
    ],
)
def test_wrong_calls(arguments: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Usage errors are refused with status 1 and one sentence."""
    status, _, reported = run(capsys, "configs", *arguments.split())
    assert status == 1
    assert text in reported
    assert "Traceback" not in reported


def test_credentials() -> None:
    """A password may have iterations; both are checked before a request is sent."""
    assert parse_credential("SCRAM-SHA-256", "password=a,b") == Credential(
        "SCRAM-SHA-256", 4096, "a,b"
    )
    assert parse_credential("SCRAM-SHA-512", "iterations=8192,password=x").iterations == 8192
    with pytest.raises(ToolError, match="Invalid credential property SCRAM_SHA_256=x"):
        parse_credential("SCRAM-SHA-256", "x")
    with pytest.raises(ToolError, match="less than the minimum 4096"):
        parse_credential("SCRAM-SHA-256", "iterations=1,password=x")
    with pytest.raises(KafkaError, match="Password must not be empty"):
        parse_credential("SCRAM-SHA-256", "password=")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1024.0, "1024.0"),
        (0.25, "0.25"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.0, "1.2345678E7"),
        (1048576000.0, "1.048576E9"),
        (0.0001, "1.0E-4"),
        (-2.5e10, "-2.5E10"),
    ],
)
def test_numbers_are_written_as_java_writes_them(value: float, text: str) -> None:
    """Large and small numbers have an exponent from Java's limits on."""
    assert double_text(value) == text


def test_client_metrics(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty value goes back to its default; deleting removes every value."""
    assert run(capsys, "client-metrics", "--list")[:2] == (0, "mine\n")
    flags = ("--name", "mine", "--interval", "", "--metrics", "a,b")
    status, text, _ = run(capsys, "client-metrics", "--alter", *flags)
    assert (status, text) == (0, "Altered client metrics config for mine.\n")
    resource = ConfigResource(ResourceType.CLIENT_METRICS, "mine")
    interval = ConfigChange("interval.ms", None, AlterOperation.DELETE)
    assert admin.changed == [{resource: [interval, ConfigChange("metrics", "a,b")]}]
    run(capsys, "client-metrics", "--delete", "--name", "mine")
    assert {change.name for change in admin.changed[1][resource]} == {"retention.ms", "flush.ms"}
    _, text, _ = run(capsys, "client-metrics", "--describe")
    assert text == "Client metrics configs for mine are:\n  flush.ms=None\n  retention.ms=5\n"
    assert run(capsys, "client-metrics", "--alter")[0] == 1


def test_a_generated_name_is_no_flag(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id whose text begins with a dash is drawn again, as by Kafka's tool."""
    drawn = [UUID(bytes=bytes([first]) + bytes(15)) for first in (0xF8, 0xFB, 0x04)]
    texts = [str(Uuid(one.bytes)) for one in drawn]
    assert [text[0] for text in texts] == ["-", "-", "B"]
    monkeypatch.setattr(client_metrics, "uuid4", iter(drawn).__next__)
    _, text, _ = run(capsys, "client-metrics", "--alter", "--generate-name", "--metrics", "a")
    assert text == f"Altered client metrics config for {texts[2]}.\n"
    assert [resource.name for resource in admin.changed[0]] == [texts[2]]


@pytest.mark.parametrize("iterations", ["", "-", "99999999999"])
def test_iterations_are_an_integer_of_java(iterations: str) -> None:
    """Nothing, a sign alone and a number beyond 32 bits are refused as Java's parseInt does."""
    with pytest.raises(ToolError, match=f'For input string: "{iterations}"'):
        parse_credential("SCRAM-SHA-256", f"iterations={iterations},password=x")


@pytest.mark.parametrize("text", ["nan", "NaN", "1_0", "inf", "", "1e", "0x10"])
def test_no_quotas(text: str, admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """NaN is refused as a quota: it would limit no client."""
    words = ("--alter", "--user", "u", "--add-config", f"producer_byte_rate=[{text}]")
    status, _, said = run(capsys, "configs", *words)
    assert status == 1
    assert f"Cannot parse quota configuration value for producer_byte_rate: {text}" in said
    assert admin.changed == []


@pytest.mark.usefixtures("admin")
def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory, invalid text and a missing file have different errors."""
    wrong = tmp_path / "wrong.properties"
    wrong.write_bytes(b"\xff=1")
    for path, text in (
        (tmp_path, "java.io.IOException: Is a directory"),
        (wrong, f"cannot read {wrong}: 'utf-8' codec can't decode"),
        (tmp_path / "none", f"java.nio.file.NoSuchFileException: {tmp_path / 'none'}"),
    ):
        words = ("--alter", "--topic", "t", "--add-config-file", str(path))
        status, _, said = run(capsys, "configs", *words)
        assert status == 1
        assert text in said
