"""Whether a user exists is not told before the password: by SCRAM's first answer, or by time."""

from __future__ import annotations

import base64
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin
from ottla.protocol.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.security.sasl.mechanism import InvalidToken
from ottla.security.sasl.plain import users_of
from ottla.security.sasl.scram import (
    TOKEN_SHAPE,
    ScramCredential,
    ScramServer,
    invented_credential,
    shape_of,
)
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import Peer
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ottla.testing.threaded_node import ThreadedNode

MECHANISM = "SCRAM-SHA-256"
SETTINGS = {
    "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": (
        "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": MECHANISM,
    "delegation.token.secret.key": "secret",
}
JAVA_SALT = b"1qv0fjk8z2m5n7p9r3t6w4x8y"
UNKNOWN = [f"unknown-{number}" for number in range(40)]


def first_answer(address: str, user: str, extension: str = "") -> tuple[bytes, int]:
    """Return salt and iterations that a node gives to a user's first message."""
    peer = Peer(address)
    peer.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
    message = f"n,,n={user},r=abcdefgh{extension}".encode()
    answer = bytes(peer.ask(SaslAuthenticateRequest(auth_bytes=message), 2).auth_bytes).decode()
    peer.close()
    fields = dict(part.split("=", 1) for part in answer.split(","))
    return base64.b64decode(fields["s"]), int(fields["i"])


def _knows(node: ThreadedNode, count: int) -> bool:
    """Whether a node has learned of so many credentials."""
    return node.run(lambda running: len(running.broker.image.scram.by_user)) == count


def test_unknown_users_look_like_known_ones() -> None:
    """On each node and after each start, with the iterations and the salts that are in use."""
    with Cluster(nodes=3, config=SETTINGS) as cluster:
        inside = cluster.nodes[0].run(lambda node: node.addresses["INSIDE"])
        with Admin(bootstrap_servers="{}:{}".format(*inside)) as admin:
            admin.alter_user_scram_credentials({"alice": "secret"}, mechanism=MECHANISM)
            admin.alter_user_scram_credentials(
                {"carol": "secret"}, mechanism=MECHANISM, iterations=8192
            )
        peer = Peer("{}:{}".format(*inside))
        stored = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name="java", mechanism=1, iterations=4096, salt=JAVA_SALT, salted_password=b"p" * 32
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[stored])
        assert not peer.ask(request, 0).results[0].error_code
        peer.close()
        known = ["alice", "carol", "java"]
        users = [*known, *UNKNOWN]
        for node in cluster.nodes:
            wait_for(partial(_knows, node, len(known)))
        answers = [
            {user: first_answer(node.address, user) for user in users} for node in cluster.nodes
        ]
        token = first_answer(cluster.nodes[0].address, "a-token", ",tokenauth=true")
        cluster.nodes[1].stop()
        cluster.nodes[1].start()
        answers.append({user: first_answer(cluster.nodes[1].address, user) for user in users})
    assert all(one == answers[0] for one in answers)
    shapes = {user: shape_of(*answers[0][user]) for user in users}
    in_use = {shapes[user] for user in known}
    assert len(in_use) == len(known)
    assert {shapes[user] for user in UNKNOWN} == in_use
    assert len({answers[0][user][0] for user in users}) == len(users)
    assert shape_of(*token) == TOKEN_SHAPE


@pytest.mark.parametrize("shapes", [(), (TOKEN_SHAPE, shape_of(JAVA_SALT, 5000))])
def test_known_and_unknown_users_take_the_same_steps(shapes: Any) -> None:
    """Of a login by SCRAM with a wrong password; one by PLAIN likewise."""
    credential = ScramCredential(b"s" * 24, b"k" * 32, b"k" * 32, 4096)

    def login(known: str) -> None:
        server = ScramServer(
            MECHANISM,
            lambda name, _is_token: credential if name == known else None,
            nonce="server",
            secret=b"s" * 32,
            shapes=lambda _is_token: shapes,
        )
        server.evaluate(b"n,,n=alice,r=client")
        proof = base64.b64encode(bytes(32)).decode()
        with pytest.raises(InvalidToken):
            server.evaluate(f"c=biws,r=clientserver,p={proof}".encode())

    is_valid = users_of({"user_alice": "the password of alice"})
    login("alice")  # the first one imports and compiles
    assert calls_of(lambda: login("alice")) == calls_of(lambda: login("carol"))
    for given in ("x", "the password of bobby", "x" * 100):
        known, unknown = (calls_of(partial(is_valid, name, given)) for name in ("alice", "alicx"))
        assert known == unknown


def calls_of(function: Callable[[], object]) -> Counter[str]:
    """Count the calls that a function makes, by name."""
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            counted[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            counted[argument.__qualname__] += 1

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return counted


def test_new_iterations_change_few_answers() -> None:
    """A first credential of another shape moves only the users that get that shape."""
    before, other = (TOKEN_SHAPE,), shape_of(JAVA_SALT, 10_000)
    moved = 0
    for user in UNKNOWN:
        old = invented_credential(b"s", MECHANISM, user, before)
        new = invented_credential(b"s", MECHANISM, user, (*before, other))
        moved += old != new
        assert new == old or shape_of(new.salt, new.iterations) == other
    assert 0 < moved < len(UNKNOWN)
