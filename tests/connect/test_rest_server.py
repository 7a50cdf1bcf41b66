"""The listeners of the REST API beyond this machine: addresses, TLS, logins and roles."""

from __future__ import annotations

import ssl
from base64 import b64encode
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, Request, build_opener

import pytest

from ottla.connect.distributed.exchange import exchange
from ottla.connect.errors import ConnectException
from ottla.connect.runtime.rest import ConnectApi
from ottla.connect.runtime.rest_access import EXTENSIONS, OPEN, READ_ONLY
from ottla.connect.runtime.rest_server import RestServer, forwarding_context
from ottla.connect.runtime.standalone import Standalone
from ottla.connect.settings import STANDALONE
from tests.connect.test_rest_api import settings_of
from tests.server.security.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LOGIN = {
    EXTENSIONS: "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
}
CONFIG = {"connector.class": "FileStreamSource", "topic": "t"}


@contextmanager
def serving(directory: Path, **changes: str) -> Iterator[RestServer]:
    """Run a worker with its listeners."""
    settings = {**settings_of(directory), "listeners": "http://127.0.0.1:0", **changes}
    server = RestServer(settings, STANDALONE.parse(settings))
    worker = Standalone(settings, server.address)
    server.start(ConnectApi(worker, "cluster"))
    try:
        yield server
    finally:
        server.stop()
        worker.stop()


def refused(directory: Path, **changes: str) -> str:
    """Return why the listeners are refused."""
    settings = {**settings_of(directory), **changes}
    with pytest.raises(ConnectException) as error:
        RestServer(settings, STANDALONE.parse(settings))
    return str(error.value)


def ask(
    url: str,
    user: str = "",
    method: str = "GET",
    *,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> tuple[int, str]:
    """Return status and text of an answer."""
    sent = dict(headers or {})
    if user:
        sent["authorization"] = f"Basic {b64encode(user.encode()).decode()}"
    opener = build_opener(HTTPSHandler(context=context))
    try:
        with opener.open(Request(url, None, sent, method=method), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture(name="login")
def _login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the files of a login; return that of the users."""
    users, jaas = tmp_path / "users", tmp_path / "jaas"
    users.write_text("ann=canary-1\nbob=canary-2:x\n")
    module = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
    jaas.write_text(f'KafkaConnect {{ {module} required\n file="{users}"; }};')
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={jaas}")
    return users


@pytest.mark.parametrize("text", ["http://worker1:8083", "http://0.0.0.0:0", "http://[::]:0"])
def test_listeners_that_others_reach_need_a_login(tmp_path: Path, text: str) -> None:
    """Also a name, which may be that of any machine; the refusal names the way out."""
    assert OPEN in refused(tmp_path, listeners=text)
    assert OPEN in refused(tmp_path, listeners=f"http://127.0.0.1:0,{text}")


@pytest.mark.parametrize("text", ["http://:99999", "http://[::1", "x", "http://h:-1"])
def test_listeners_without_their_form_have_kafkas_text(tmp_path: Path, text: str) -> None:
    """As RestServer.createConnector."""
    expected = "Listener doesn't have the right format (protocol://hostname:port)."
    assert refused(tmp_path, listeners=text) == expected


def test_a_protocol_that_is_none_has_kafkas_text(tmp_path: Path) -> None:
    """As RestServer.createConnector."""
    expected = 'Listener protocol must be either "http" or "https".'
    assert refused(tmp_path, listeners="ftp://localhost:1") == expected


def test_an_open_listener_is_served_when_the_operator_accepts_it(tmp_path: Path) -> None:
    """Pages of other hosts are refused; the worker's own are not."""
    changes = {OPEN: "true", "listeners": "http://0.0.0.0:0"}
    with serving(tmp_path, **changes) as server:
        port = server.address.rpartition(":")[2]
        url = f"http://127.0.0.1:{port}/connectors"
        assert ask(url, headers={"host": "worker.example"}) == (200, "[]")
        assert ask(url, headers={"origin": "http://evil.example"})[0] == 403
        assert ask(url, headers={"origin": f"http://127.0.0.1:{port}"})[0] == 200
        assert not server.address.startswith("0.0.0.0")


def test_a_name_without_a_host_stays_on_this_machine_without_a_login(tmp_path: Path) -> None:
    """Kafka's default, http://:8083, is reached by others only after a login."""
    with serving(tmp_path, listeners="http://:0,http://LocalHost:0") as server:
        assert server.address.startswith("127.0.0.1:")


def test_the_advertised_address_is_the_workers_id(tmp_path: Path) -> None:
    """Host, port and protocol are the operator's where they are set."""
    changes = {"rest.advertised.host.name": "w1.example", "rest.advertised.port": "81"}
    with serving(tmp_path, **changes) as server:
        assert (server.address, server.url) == ("w1.example:81", "http://w1.example:81/")
    wrong = {"rest.advertised.listener": "https", "listeners": "http://127.0.0.1:0"}
    assert "listeners has no https" in refused(tmp_path, **wrong)


def test_an_address_of_ipv6_can_be_asked_by_other_workers(tmp_path: Path) -> None:
    """Its colons are not those of the port."""
    try:
        with serving(tmp_path, listeners="http://[::1]:0") as server:
            assert server.address.startswith("[::1]:")
            assert ask(server.url)[0] == 200
    except ConnectException as error:
        pytest.skip(str(error))


def test_users_log_in_and_readers_only_read(tmp_path: Path, login: Path) -> None:
    """Kafka's text for a wrong login; the logs and answers have no password."""
    assert login.exists()
    with serving(tmp_path, **LOGIN, **{READ_ONLY: "bob", "listeners": "http://0.0.0.0:0"}) as it:
        url = f"http://127.0.0.1:{it.address.rpartition(':')[2]}/connectors"
        for user in ("", "ann", "ann:", "ann:canary-2:x", "eve:", "eve:canary-1", ":canary-1"):
            assert ask(url, user) == (401, "User cannot access the resource."), user
        for header in ("Basic", "Basic ??", "Bearer YW5uOmNhbmFyeS0x", "basic \xff"):
            assert ask(url, headers={"authorization": header})[0] == 401
        assert ask(url, "ann:canary-1") == (200, "[]")
        assert ask(url, "bob:canary-2:x") == (200, "[]")
        status, text = ask(f"{url}/c", "bob:canary-2:x", "DELETE")
        assert (status, "User bob may only read." in text) == (403, True)
        assert ask(f"{url}/c", "ann:canary-1", "DELETE")[0] == 404
        foreign = {"origin": "http://evil.example"}
        assert ask(url, "ann:canary-1", headers=foreign)[0] == 403
        # between workers: signed where the route exists, which a standalone worker has not
        assert ask(f"{url}/c/tasks", method="POST")[0] == 405
        assert ask(f"{url}/c/tasks", method="GET")[0] == 401
        assert ask(f"{url}/c/tasks/x", method="POST")[0] == 401


@pytest.mark.parametrize("users", ["", "ann", "ann=\n"])
def test_a_login_that_would_admit_everybody_is_refused(
    tmp_path: Path, login: Path, users: str
) -> None:
    """Kafka's module admits all while the file is empty."""
    login.write_text(users)
    assert "USER=PASSWORD" in refused(tmp_path, **LOGIN)


def test_logins_that_cannot_be_read_are_refused_without_their_secrets(
    tmp_path: Path, login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing file, an unknown extension, and readers without a login."""
    assert "no user eve" in refused(tmp_path, **LOGIN, **{READ_ONLY: "eve"})
    login.write_text("ann=\\uZZcanary")
    assert "canary" not in refused(tmp_path, **LOGIN)
    login.unlink()
    assert "No such file" in refused(tmp_path, **LOGIN)
    monkeypatch.setenv("KAFKA_OPTS", "")
    assert "KAFKA_OPTS names no login file" in refused(tmp_path, **LOGIN)
    assert "shop.Audit is not there" in refused(tmp_path, **{EXTENSIONS: "shop.Audit"})
    assert READ_ONLY in refused(tmp_path, **{READ_ONLY: "bob"})


def test_tls_with_certificates_of_clients_is_a_login(tmp_path: Path) -> None:
    """Other workers forward with the listeners' key; without a certificate there is no answer."""
    authority = Authority()
    trust = tmp_path / "trust.pem"
    trust.write_text(authority.pair.certificate_pem)
    tls = {
        "listeners.https.ssl.keystore.location": authority.issue("w1").write_pem(tmp_path / "keys"),
        "listeners.https.ssl.truststore.location": str(trust),
        "listeners.https.ssl.client.auth": "required",
        "listeners": "https://0.0.0.0:0",
        "rest.advertised.host.name": "localhost",
    }
    with serving(tmp_path, **tls) as server:
        assert server.url.startswith("https://localhost:")
        context = forwarding_context(tls)
        assert exchange(server.url, "GET", "/connectors", b"", {}, context=context)[:2] == (
            200,
            b"[]",
        )
        without_key = ssl.create_default_context(cafile=str(trust))
        with pytest.raises(ConnectException, match="IO Error trying to forward REST request"):
            exchange(server.url, "GET", "/connectors", b"", {}, context=without_key)
        untrusting = ssl.create_default_context()
        with pytest.raises(ConnectException, match="certificate verify failed"):
            exchange(server.url, "GET", "/connectors", b"", {}, context=untrusting)
    wrong = {**tls, "listeners.https.ssl.client.auth": "maybe"}
    assert "required, requested, none" in refused(tmp_path, **wrong)
    assert OPEN in refused(tmp_path, **{**tls, "listeners.https.ssl.client.auth": "requested"})
    trusting_all = {name: it for name, it in tls.items() if "truststore" not in name}
    for empty in ({}, {"listeners.https.ssl.truststore.location": ""}):
        assert "a trust store" in refused(tmp_path, **trusting_all, **empty)
    assert "keystore" in refused(tmp_path, listeners="https://127.0.0.1:0")
    both = {**tls, "listeners": "https://127.0.0.1:0,http://0.0.0.0:0"}
    assert OPEN in refused(tmp_path, **both)
