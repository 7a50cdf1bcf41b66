"""Secrets by reference: only where a connector or a task starts do their values appear."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from ottla.clients.blocking import Consumer
from ottla.config.problems import ConfigErrors
from ottla.connect.distributed.herder import RequestTarget
from ottla.connect.errors import ConnectException
from ottla.connect.mirror.flows import Flow, MirrorMakerConfig
from ottla.connect.plugins import Plugin
from ottla.connect.runtime.secrets import Secrets, worker_settings
from tests.connect import leaking
from tests.connect.distributed.test_worker import call, settings_of, until, worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

from ottla.testing.cluster import Cluster

FILE = "org.apache.kafka.common.config.provider.FileConfigProvider"
PROVIDERS = {"config.providers": "file", "config.providers.file.class": FILE}
CANARY, TOKEN = "canary-'7f3a/9", "canary-token-5521"


@pytest.fixture(name="secrets_file")
def _secrets_file(tmp_path: Path) -> Path:
    file = tmp_path / "own.properties"
    file.write_text(f"login={CANARY}\ntoken={TOKEN}\nbad=bad-{TOKEN}\nx=1\n")
    return file


@pytest.fixture(name="bootstrap", scope="module")
def _bootstrap() -> Iterator[str]:
    with Cluster() as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("runtime", ["thread", "process"])
def test_no_topic_answer_status_or_log_has_a_value(
    runtime: str, bootstrap: str, secrets_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The task gets the values, though its settings were stored; its failure names references."""
    caplog.set_level(logging.DEBUG)
    reference = f"${{file:{secrets_file}:login}}"
    config = {
        "connector.class": "tests.connect.leaking.LeakingConnector",
        "login": reference,
        "token": f"${{file:{secrets_file}:token}}",
        "ottla.runtime": runtime,
    }
    answers = []
    leaking.seen.clear()
    settings = settings_of(bootstrap, f"secrets-{runtime}", **PROVIDERS)
    with worker(settings) as (running, port):
        plugin = Plugin(config["connector.class"], "source", f"{leaking.__name__}:LeakingConnector")
        running.plugins.plugins += (plugin,)
        validate = f"/connector-plugins/{plugin.java_class}/config/validate"
        until(lambda: call(port, "PUT", "/connectors/l/config", config)[0] == 201)
        until(lambda: call(port, "GET", "/connectors/l/status")[1].get("tasks", []) != [])
        until(lambda: "trace" in call(port, "GET", "/connectors/l/status")[1]["tasks"][0])
        until(lambda: any(it.domain == "leaking" for it in running.metrics().result(30)))
        beans = str(running.metrics().result(30))
        answers = [
            call(port, "GET", path)
            for path in (
                *("/connectors/l", "/connectors/l/config", "/connectors/l/tasks"),
                *("/connectors/l/status", "/connectors?expand=info&expand=status"),
                *("/connectors/l/offsets", f"/connector-plugins/{plugin.java_class}/config"),
            )
        ]
        answers.append(call(port, "PUT", validate, {**config, "name": "l"}))
        bad = {**config, "token": f"${{file:{secrets_file}:bad}}"}
        answers.append(call(port, "PUT", validate, {**bad, "name": "l"}))
        answers.append(call(port, "PUT", "/connectors/bad/config", bad))
        missing = {**config, "token": "${file:/no/such:key}"}
        status, body = call(port, "PUT", "/connectors/missing/config", missing)
    assert status == 500
    assert "Could not read properties from file /no/such" in body["message"]
    assert answers[-1][1]["message"].splitlines()[1].endswith(f": token is {bad['token']}")
    assert answers[3][1]["tasks"][0]["state"] == "FAILED"
    assert reference in answers[3][1]["tasks"][0]["trace"]
    stored = answers[2][1][0]["config"]
    assert (stored["login"], stored["copy"], stored["token"]) == (
        *(reference, reference),
        config["token"],
    )
    if runtime == "thread":  # else it is another process that has seen them
        assert leaking.seen[0]["copy"] == leaking.seen[0]["login"] == CANARY
        assert leaking.seen[0]["url"] == f"db://me:{CANARY}@host/{CANARY}"
    assert f"{{'url': 'db://me:{reference}@host/{reference}'}}" in beans
    everything = [json.dumps(answers), caplog.text, beans]
    topics = [f"secrets-{runtime}-{it}" for it in ("config", "offset", "status")]
    with Consumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=f"all-{runtime}",
        auto_offset_reset="earliest",
    ) as consumer:
        read: list[str] = []

        def is_read() -> bool:
            read.extend(f"{it.topic} {it.key!r} {it.value!r}" for it in consumer.poll(0.2))
            stored = any(it.startswith(f"{topics[0]} ") for it in read)
            return stored and any("FAILED" in it for it in read)

        until(is_read)
    everything += read
    assert any(reference in it for it in read)
    assert not [it for it in everything if "canary" in it]


def test_references_that_nothing_resolves_stay_as_they_are(secrets_file: Path) -> None:
    """An unknown provider or key, as in Kafka; without providers all are texts."""
    secrets = Secrets(PROVIDERS)
    config = {"a": f"${{file:{secrets_file}:absent}}", "b": "${vault:p:k}", "c": "${file"}
    assert secrets.resolve(config) == config
    assert Secrets({}).resolve(config) == config
    with pytest.raises(ConnectException, match="Could not read properties from file /no/such"):
        secrets.resolve({"a": "${file:/no/such:k}"})


def test_a_worker_with_unknown_providers_does_not_start() -> None:
    """One line names the setting."""
    settings = {"config.providers": "own", "config.providers.own.class": "com.example.Own"}
    for make in (Secrets, worker_settings):
        with pytest.raises(ConfigErrors, match=r"config\.providers\.own\.class=com\.example\.Own"):
            make(settings)


def test_short_values_are_restored_by_their_names_only(secrets_file: Path) -> None:
    """A value of one letter is in every text."""
    secrets = Secrets(PROVIDERS)
    config = {"x": f"${{file:{secrets_file}:x}}"}
    resolved = secrets.resolve(config)
    assert resolved == {"x": "1"}
    assert secrets.task_configs(config, [{"x": "1", "port": "9091"}]) == [
        {**config, "port": "9091"}
    ]
    assert secrets.conceal("line 1") == "line 1"


def test_whole_files_are_concealed_as_connectors_show_them(tmp_path: Path) -> None:
    """Without the end of the line, which parsed settings lose, and printed line by line."""
    directory = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
    secrets = Secrets({"config.providers": "dir", "config.providers.dir.class": directory})
    key = "-----BEGIN KEY-----\ncanary-of-line-1\r\n  canary-of-line-2\n"
    for name, text in (("password", "canary-7f3a\n"), ("key", key)):
        (tmp_path / name).write_text(text)
    config = {name: f"${{dir:{tmp_path}:{name}}}" for name in ("password", "key")}
    resolved = secrets.resolve(config)
    printed = f"login failed: {resolved['password'].strip()}\n{resolved['key']}"
    for line in (printed, *printed.splitlines()):
        assert "canary" not in secrets.conceal(line)
    assert secrets.task_configs({}, [resolved]) == [config]


def test_a_line_of_the_log_that_is_wrong_harms_nobody(secrets_file: Path) -> None:
    """It is logged as it is, without values: no handler prints its arguments."""
    secrets = Secrets(PROVIDERS)
    secrets.resolve({"token": f"${{file:{secrets_file}:token}}"})
    record = logging.LogRecord("shop", logging.INFO, "", 0, "%d of %d", (TOKEN,), None)
    assert secrets.filter(record)
    assert record.getMessage() == f"%d of %d ('${{file:{secrets_file}:token}}',)"


def test_an_old_value_is_concealed_after_a_change(secrets_file: Path) -> None:
    """A task that still runs has it."""
    secrets = Secrets(PROVIDERS)
    config = {"login": f"${{file:{secrets_file}:login}}"}
    secrets.resolve(config)
    secrets_file.write_text("login=another-canary\n")
    assert secrets.resolve(config) == {"login": "another-canary"}
    assert secrets.conceal(f"{CANARY} another-canary") == " ".join([config["login"]] * 2)


def test_mirrors_keep_references_in_their_connectors(secrets_file: Path) -> None:
    """Workers get the values, and the providers for their connectors."""
    reference = f"${{file:{secrets_file}:login}}"
    config = MirrorMakerConfig(
        {
            **PROVIDERS,
            "clusters": "a,b",
            "a.bootstrap.servers": "a:1",
            "b.bootstrap.servers": "b:1",
            "b.sasl.jaas.config": reference,
            "a->b.enabled": "true",
        }
    )
    settings = config.worker(Flow("a", "b"))
    assert (settings["sasl.jaas.config"], settings["config.providers"]) == (CANARY, "file")
    connector = config.connector(Flow("a", "b"), "MirrorSource")
    assert connector["target.cluster.sasl.jaas.config"] == reference
    assert Secrets(settings).resolve(connector)["target.producer.sasl.jaas.config"] == CANARY


def test_an_error_keeps_its_kind_and_what_it_carries(tmp_path: Path) -> None:
    """A request for another worker goes there also when its text has a value."""
    (tmp_path / "file").write_text("key=canary")
    secrets = Secrets(
        {
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider."
            "FileConfigProvider",
        }
    )
    reference = f"${{file:{tmp_path}/file:key}}"
    assert secrets.resolve({"x": reference}) == {"x": "canary"}
    moved = secrets.conceal_error(RequestTarget("the owner of canary", "http://other/"))
    assert isinstance(moved, RequestTarget)
    assert (str(moved), moved.url) == (f"the owner of {reference}", "http://other/")
    assert type(secrets.conceal_error(ValueError("canary"))) is ConnectException
