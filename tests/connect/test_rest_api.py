"""The REST API on a worker without a broker."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect.errors import BadRequestException, ConnectException
from ottla.connect.plugins import Plugin
from ottla.connect.runtime import rest, sink_offsets
from ottla.connect.runtime.offsets import OffsetStore
from ottla.connect.runtime.rest import ConnectApi
from ottla.connect.runtime.standalone import Standalone
from ottla.connect.runtime.state import TargetState
from ottla.connect.settings import OverridePolicy
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CONFIG = {"name": "s", "connector.class": "FileStreamSource", "topic": "t"}


def settings_of(directory: Path) -> dict[str, str]:
    """Return the settings of a worker without a broker."""
    return {
        "bootstrap.servers": "127.0.0.1:1",
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.storage.file.filename": str(directory / "offsets"),
    }


@pytest.fixture(name="worker")
def _worker(tmp_path: Path) -> Iterator[Standalone]:
    worker = Standalone(settings_of(tmp_path), "w:1")
    worker.put("s", CONFIG, may_replace=False, initial=TargetState.STOPPED).result(WAIT_S)
    yield worker
    worker.stop()


class Body:
    """A request of JSON."""

    def __init__(self, text: bytes) -> None:
        """Take its body."""
        self.headers, self.query_params = {"content-type": "application/json"}, dict[str, str]()
        self._text = text

    async def body(self) -> bytes:
        """Return it."""
        return self._text


def test_a_change_has_texts_as_all_settings(worker: Standalone) -> None:
    """Numbers and truth of JSON are texts; another name is none of the connector's."""
    api = ConnectApi(worker, "cluster")

    async def patch(text: bytes) -> Any:
        return await api._patch(Body(text), "s")  # type: ignore[arg-type] # what it uses

    asyncio.run(patch(b'{"tasks.max": 2, "errors.log.enable": true, "file": "x"}'))
    asyncio.run(patch(b'{"file": null}'))
    stored = worker.call(lambda it: it.config("s")).result(WAIT_S)
    assert stored == {**CONFIG, "tasks.max": "2", "errors.log.enable": "true"}
    with pytest.raises(BadRequestException, match="doesn't match connector name in the URL"):
        asyncio.run(patch(b'{"name": "z"}'))


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("text/plain; format=json", False),
        ("text/plain;application/json", False),
        ("multipart/form-data; boundary=json", False),
        ("", False),
    ],
)
def test_a_body_that_any_page_of_the_web_may_send_is_refused(
    worker: Standalone, content_type: str, *, is_json: bool
) -> None:
    """Browsers ask before they send JSON, not before text or a form."""
    body = Body(b'{"file": "y"}')
    body.headers = {"content-type": content_type}
    change = ConnectApi(worker, "cluster")._patch(body, "s")  # type: ignore[arg-type]
    if is_json:
        assert asyncio.run(change).body["config"]["file"] == "y"
        return
    with pytest.raises(rest.HttpError) as refused:
        asyncio.run(change)
    assert refused.value.status == 415


def test_a_package_that_hangs_when_it_is_imported_holds_only_its_request_up(
    worker: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings are asked for on a thread of their own."""
    has_begun, may_end = threading.Event(), threading.Event()

    def load(_: Plugin) -> Any:
        has_begun.set()
        may_end.wait(WAIT_S)
        raise ConnectException("no such package")

    worker.plugins.plugins += (Plugin("shop.Slow", "source", "shop:Slow"),)
    api = ConnectApi(worker, "cluster")

    async def ask() -> None:
        slow = asyncio.create_task(api._plugin_config(Body(b""), "shop.Slow"))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        while not has_begun.is_set():  # noqa: ASYNC110 - the loop turns
            await asyncio.sleep(0.01)
        assert (await api._root(Body(b""))).status == 200  # type: ignore[arg-type]
        assert not slow.done()
        may_end.set()
        await asyncio.wait([slow], timeout=WAIT_S)

    monkeypatch.setattr(Plugin, "load", load)
    asyncio.run(ask())
    monkeypatch.undo()


def test_a_worker_whose_herder_hangs_is_unhealthy(
    worker: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe is answered, as Kafka's after ten seconds."""
    monkeypatch.setattr(rest, "_HEALTH_S", 0.1)
    may_end = threading.Event()
    worker.call(lambda _: may_end.wait(WAIT_S))
    answer = asyncio.run(ConnectApi(worker, "cluster")._health(Body(b"")))  # type: ignore[arg-type]
    may_end.set()
    assert (answer.status, answer.body["status"]) == (500, "unhealthy")


def test_offsets_of_many_partitions_are_read_at_once() -> None:
    """Each reading of the topic to its end asks brokers, and parses all keys."""

    class Storage:
        def __init__(self) -> None:
            self.reads = 0

        @property
        def entries(self) -> dict[bytes | None, bytes | None]:
            self.reads += 1
            return {b'["c",{"p":%d}]' % it: b'{"at":%d}' % it for it in range(100)}

        def put(self, entries: Mapping[bytes, bytes | None]) -> None:
            raise NotImplementedError

    storage = Storage()
    store = OffsetStore(storage)
    storage.reads = 0
    found = store.get_all("c", [{"p": it} for it in range(101)])
    assert found == [*({"at": it} for it in range(100)), None]
    assert storage.reads == 1


def test_a_client_that_the_policy_refuses_does_not_alter_offsets_either(tmp_path: Path) -> None:
    """The connector is from before the policy."""
    settings = {**settings_of(tmp_path), "connector.client.config.override.policy": "None"}
    worker = Standalone(settings, "w:1")
    config = {
        "name": "k",
        "connector.class": "FileStreamSink",
        "topics": "t",
        "admin.override.bootstrap.servers": "elsewhere:1",
    }
    worker.call(lambda it: it.put("k", config, may_replace=True)).result(WAIT_S)
    with pytest.raises(ConnectException, match="Overrides not allowed"):
        worker.offsets("k").result(WAIT_S)
    worker.stop()


def test_the_admin_client_of_a_connector_has_the_settings_of_its_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a prefix, with its prefix, and the connector's own, which goes before both."""
    monkeypatch.setattr(sink_offsets, "Admin", lambda config: config)
    worker = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "request.timeout.ms": "1",
        "admin.request.timeout.ms": "2",
        "admin.retries": "2",
        "consumer.security.protocol": "SSL",
        "key.converter": "StringConverter",
    }
    config = {"name": "s", "admin.override.retries": "3", "producer.override.retries": "4"}
    made: Any = sink_offsets.connector_admin(worker, OverridePolicy(), config)
    assert made == {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "request.timeout.ms": "2",
        "retries": "3",
    }
