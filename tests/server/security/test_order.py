"""The order of a request: nothing is opened, loaded, sent or told before the right was found.

Each API in each version, also inside an envelope, comes from a user without any right and from one
with all rights to something else, about what exists and about what does not.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ottla import Admin, Producer
from ottla.errors import ErrorCode
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.frames import ResponseHeader, encode_request
from ottla.protocol.records.principal import DefaultPrincipalData
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ottla.security.principal import ANONYMOUS, Principal
from ottla.server.controller.apis import ControllerApis
from ottla.server.requests.api import served_apis
from ottla.server.requests.dispatch import Dispatcher
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition
from tests.server.security.walked_requests import (
    BY_ID,
    Walked,
    absent,
    codes_of,
    comparable,
    existing,
    walk,
)
from tests.soaks import with_soaks
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from ottla.server.node.node import Node
    from ottla.types import Uuid

FORWARDED = {key for key, api in served_apis("controller").items() if api.is_forwarded}
MALLORY, BOB = Principal("User", "mallory"), Principal("User", "bob")
OTHER = "everything-of-bob"
EVENTS = ("open", "import", "socket.", "subprocess.", "os.", "shutil.", "ctypes.")
CALLS, CALLS_PER_BYTE = 1000, 6
"""The most found were 600, and 3.6 for each byte of a request with a hundred names."""
AUTHORIZATION = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    }
)
FOR_ALL = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""They need no right; their answers depend on the client's own last ones."""
OWN_TOKENS = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)
"""Each user may have tokens of its own; in an envelope the broker has checked the connection."""
REVIEWED_CODES = {
    (ApiKey.METADATA, ErrorCode.INVALID_REQUEST): "ids in versions 10 and 11, as in Kafka",
    (ApiKey.METADATA, ErrorCode.UNKNOWN_TOPIC_ID): "an id cannot be guessed, as below",
    (ApiKey.FETCH, ErrorCode.UNKNOWN_TOPIC_ID): "an id cannot be guessed, as below",
    (ApiKey.DELETE_TOPICS, ErrorCode.UNKNOWN_TOPIC_ID): "an id cannot be guessed, as below",
    (ApiKey.PRODUCE, ErrorCode.UNKNOWN_TOPIC_ID): "an id cannot be guessed, as below",
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, ErrorCode.UNKNOWN_SERVER_ERROR): "at a controller, for all",
}
REVIEWED_DIFFERENCES = {
    (ApiKey.FETCH, 13): "random ids of 122 bits cannot be guessed; Kafka answers 29 and 100, too",
    (ApiKey.PRODUCE, 13): "as Fetch",
    (
        ApiKey.DELETE_TOPICS,
        6,
    ): "as Fetch; the controller looks for unknown ids",
    (ApiKey.METADATA, 12): "as Fetch",
}
"""By API and first version."""


class Watch:
    """What one thread does while it is watched."""

    def __init__(self) -> None:
        self._this_thread = threading.get_ident  # the module is gone when the hook is called last
        self.thread = 0
        self.seen: list[str] = []
        self.calls = 0

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an event of the interpreter."""
        if self._this_thread() == self.thread and event.startswith(EVENTS):
            self.note(f"{event} {arguments[:1]!r}")

    def note(self, what: str) -> None:
        """Note something that must wait for a right."""
        if self._this_thread() == self.thread:
            self.seen.append(what)

    def count(self, _frame: FrameType, event: str, _argument: Any) -> None:
        """Count a call."""
        self.calls += event in {"call", "c_call"}


WATCH = Watch()
sys.addaudithook(WATCH.audit)


class Outcome(NamedTuple):
    """What a request led to in its turn of the loop."""

    answers: list[bytes]
    is_closed: bool
    seen: list[str]
    calls: int


class Heard:
    """A connection that keeps its answers."""

    listener_name = "PLAINTEXT"
    peer_host, peer_port = "127.0.0.1", 1
    is_closed = is_in_login = False
    attachment = None

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.connection_id = f"walk-{id(self)}"
        self.answers: list[bytes] = []

    def respond_bytes(self, data: bytes) -> None:
        """Keep an answer."""
        self.answers.append(data)

    def respond(self, items: list[Any]) -> None:
        """Keep an answer."""
        self.answers.append(b"".join(items))

    def respond_and_mute(self, items: list[Any], _throttle_ms: int) -> None:
        """Keep an answer."""
        self.respond(items)

    def mute(self, _throttle_ms: int) -> None:
        """Wait for nothing."""

    def request_done(self) -> None:
        """Note an answer without bytes."""
        self.answers.append(b"")

    def finish(self) -> None:
        """Close."""
        self.is_closed = True

    close = finish


class Target:
    """A node that is asked on its own loop, without a socket."""

    def __init__(self, cluster: Cluster, topic_id: Uuid, path: str) -> None:
        self._cluster = cluster
        self.there, self.absent = existing(topic_id, path), absent()
        node: Node = cluster.run(lambda running: running)
        clock = time.perf_counter
        self._dispatchers = {
            kind: Dispatcher(node.broker, kind, clock, None) for kind in ("broker", "controller")
        }

    def ask(self, listener: str, principal: Principal, frame: bytes) -> Outcome:
        """Handle a frame; return what was seen in that turn, and the answer."""
        heard = Heard(principal)
        dispatcher: Any = self._dispatchers[listener]

        def handle(_node: Node) -> tuple[list[str], int]:
            WATCH.seen, WATCH.calls, WATCH.thread = [], 0, threading.get_ident()
            sys.setprofile(WATCH.count)
            try:
                dispatcher.handle_frame(heard, memoryview(frame))
            finally:
                sys.setprofile(None)
                WATCH.thread = 0
            return WATCH.seen, WATCH.calls

        seen, calls = self._cluster.run(handle)
        wait_for(lambda: heard.answers or heard.is_closed, problem="no answer")
        return Outcome(heard.answers, heard.is_closed, seen, calls)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Run a node where everything exists under one name, and bob owns everything of another."""
    path: Path = tmp_path_factory.mktemp("walk") / "abcdefgh"
    path.write_text("no certificate")
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:node",
    }
    name = "abcdefgh"
    with Cluster(config=settings) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            for topic in (name, OTHER):
                admin.create_topic(topic, 1)
                admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 0})
            admin.alter_user_scram_credentials({name: "secret", OTHER: "secret"})
            kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
            rights = [
                Acl(
                    kind,
                    PatternType.LITERAL,
                    OTHER,
                    str(BOB),
                    "*",
                    Operation.ALL,
                    Permission.ALLOW,
                )
                for kind in kinds
            ]
            assert not any(admin.create_acls(rights).values())
        with Producer(
            bootstrap_servers=cluster.bootstrap, config={"transactional.id": name}
        ) as producer:
            producer.init_transactions()
        topic_id = cluster.run(lambda node: node.broker.image.topics.topic_id(name))
        assert topic_id is not None
        yield Target(cluster, topic_id, str(path))


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note jobs for workers, and decisions of the controller, too."""
    submit, send = ThreadPoolExecutor.submit, ControllerApis.send

    def submitted(pool: ThreadPoolExecutor, *arguments: Any, **keywords: Any) -> Any:
        WATCH.note("a job for a worker")
        return submit(pool, *arguments, **keywords)

    def sent(apis: ControllerApis, request: Any, requester: Any = None) -> Any:
        WATCH.note(f"the controller decides {type(request).__name__}")
        return send(apis, request, requester)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submitted)
    monkeypatch.setattr(ControllerApis, "send", sent)


def check(walked: Walked, found: Outcome, *, has_rights: bool) -> list[str]:
    """Return what a request led to that it must not."""
    if walked.key in FOR_ALL:
        return []
    is_by_id = walked.key is ApiKey.DELETE_TOPICS and walked.variant == BY_ID
    problems = [] if is_by_id else [f"{walked}: {one}" for one in found.seen]
    if found.is_closed:
        problems.append(f"{walked}: closed")
    elif not has_rights:
        codes = codes_of(walked, found.answers[0]) - AUTHORIZATION
        codes -= {code for key, code in REVIEWED_CODES if key is walked.key}
        problems += [f"{walked}: {ErrorCode(code).name}" for code in codes]
    return problems


def is_reviewed(walked: Walked) -> bool:
    """Whether the answers about what exists and what does not may differ."""
    versions = [first for key, first in REVIEWED_DIFFERENCES if key is walked.key]
    is_named = walked.key in {ApiKey.METADATA, ApiKey.DELETE_TOPICS} and walked.variant != BY_ID
    return walked.key in FOR_ALL or (not is_named and walked.version >= min(versions, default=99))


@pytest.mark.parametrize("principal", [MALLORY, BOB], ids=["no rights", "rights to others"])
@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_nothing_is_done_or_told_before_the_right(
    target: Target, listener: str, principal: Principal
) -> None:
    """One answer for what exists and what does not; no file, import, socket, job or decision."""
    problems: list[str] = []
    has_rights = principal is not MALLORY
    for there, not_there in zip(
        walk(listener, target.there), walk(listener, target.absent), strict=True
    ):
        second = target.ask(listener, principal, not_there.frame())
        first = target.ask(listener, principal, there.frame())
        problems += check(there, first, has_rights=has_rights)
        problems += check(not_there, second, has_rights=has_rights)
        if first.is_closed or second.is_closed:
            continue
        told = comparable(there, first.answers[0], target.there)
        if not is_reviewed(there) and told != comparable(
            not_there, second.answers[0], target.absent
        ):
            problems.append(f"{there}: another answer for what exists")
    assert not problems


@pytest.mark.parametrize("listener", with_soaks(["controller", "broker"]))
def test_work_for_a_denied_request_is_bounded_by_its_size(target: Target, listener: str) -> None:
    """Calls are counted, so that a busy machine changes nothing."""
    for named in (target.there, target.there._replace(elements=100)):
        for walked in walk(listener, named):
            frame = walked.frame()
            target.ask(listener, MALLORY, frame)  # the first one compiles the codec
            calls = target.ask(listener, MALLORY, frame).calls
            assert calls <= CALLS + CALLS_PER_BYTE * len(frame), (str(walked), calls, len(frame))


def test_forwarded_requests_have_the_same_order(target: Target) -> None:
    """In an envelope of a broker, with the rights of the client inside."""
    problems: list[str] = []
    for there, not_there in zip(
        walk("controller", target.there), walk("controller", target.absent), strict=True
    ):
        if there.key not in FORWARDED - OWN_TOKENS:
            continue
        answers = []
        for walked, named in ((not_there, target.absent), (there, target.there)):
            found = target.ask("controller", ANONYMOUS, enveloped(walked, MALLORY))
            inner = found._replace(answers=[opened(found.answers[0])])
            problems += check(walked, inner, has_rights=False)
            answers.append(comparable(walked, inner.answers[0], named))
        if not is_reviewed(there) and answers[0] != answers[1]:
            problems.append(f"{there}: another answer for what exists")
    assert not problems


def enveloped(walked: Walked, principal: Principal) -> bytes:
    """Return the frame of an envelope, without its size."""
    spoken: list[Any] = []
    data = DefaultPrincipalData(type=principal.type, name=principal.name, token_authenticated=False)
    codec.encode_into(data, 0, spoken)
    request = EnvelopeRequest(
        request_data=walked.frame(),
        request_principal=bytes(2) + b"".join(spoken),
        client_host_address=bytes([127, 0, 0, 1]),
    )
    return b"".join(encode_request(request, 0, 7, "broker"))[4:]  # type: ignore[arg-type] # no file slices


def opened(frame: bytes) -> bytes:
    """Return the answer inside an envelope, as a frame."""
    body = memoryview(frame)[4:]
    position = codec.decode_at(ResponseHeader, 1, body, 0)[1]
    answer, _ = codec.decode_at(EnvelopeResponse, 0, body, position)
    assert answer.error_code == 0
    assert answer.response_data is not None
    return bytes(4) + bytes(answer.response_data)
