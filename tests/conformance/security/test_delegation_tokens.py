"""Delegation tokens as real Kafka 4.3.0: each request in each version, its tool, its login."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.main import main
from ottla.protocol.apis.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka
    from tests.conformance.security.secured import SecuredSide

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
_Renewer = CreateDelegationTokenRequest.CreatableRenewers
_Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
CREATE_FOR_ALICE = Acl(
    ResourceType.USER,
    PatternType.LITERAL,
    "User:alice",
    "User:carol",
    "*",
    Operation.CREATE_TOKENS,
    Permission.ALLOW,
)
SEE_OF_ALICE = CREATE_FOR_ALICE._replace(principal="User:bob", operation=Operation.DESCRIBE_TOKENS)


def create(version: int, owner: str = "", kind: str = "User", **fields: Any) -> Any:
    """Return the request for a token that bob may renew."""
    renewers = [_Renewer(principal_type=kind, principal_name="bob")]
    given = {"owner_principal_type": "User", "owner_principal_name": owner} if owner else {}
    if version < 3:
        given = {}
    return CreateDelegationTokenRequest(
        **{"renewers": renewers, "max_lifetime_ms": -1, **given, **fields}
    )


def told(answer: Any) -> str:
    """Return an answer with times relative to the issue, and without what is drawn at random."""
    text = repr(answer)
    issued = [int(one) for one in re.findall(r"issue_timestamp(?:_ms)?=(\d+)", text)]
    base = issued[0] if issued else 0
    text = re.sub(r"(token_id)='[^']{5,}'", r"\1", text)
    text = re.sub(r"(hmac)=b['\"].{5,}?['\"](?=[,)])", r"\1", text)
    return re.sub(
        r"(timestamp(?:_ms)?)=(\d{6,})",
        lambda found: f"{found[1]}={(int(found[2]) - base) // 60_000 if base else 'time'}",
        text,
    )


def play(side: SecuredSide) -> Iterator[tuple[str, str]]:
    """Ask one node all of it; yield what it answers."""
    side.set_acls([CREATE_FOR_ALICE, SEE_OF_ALICE])
    for version in (1, 2, 3):
        renew_version = min(version, 2)
        for user in ("alice", "ANONYMOUS"):
            yield f"create {user} {version}", told(side.ask(user, create(version), version))
        yield f"type {version}", told(side.ask("alice", create(version, kind="Group"), version))
        for user in ("bob", "carol"):
            answer = side.ask(user, create(version, "alice"), version)
            yield f"owner {user} {version}", told(answer)
        made = side.ask("alice", create(version, max_lifetime_ms=3_600_000), version)
        yield f"short {version}", told(made)
        side.settle()
        hmac = bytes(made.hmac)
        for user in ("alice", "bob", "carol", "ANONYMOUS"):
            renewal = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=60_000)
            yield f"renew {user} {version}", told(side.ask(user, renewal, renew_version))
            side.settle()
            for owners in (None, [], [_Owner(principal_type="User", principal_name="alice")]):
                answer = side.ask(user, DescribeDelegationTokenRequest(owners=owners), version)
                if not isinstance(answer, str) and answer is not None:
                    answer.tokens = [one for one in answer.tokens if one.token_id == made.token_id]
                shown = re.sub(r"(expiry_timestamp|max_timestamp)=\d+", r"\1", told(answer))
                yield f"describe {user} {version} {owners}", shown
        for user in ("carol", "ANONYMOUS", "bob"):
            ending = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
            yield f"expire {user} {version}", told(side.ask(user, ending, renew_version))
        side.settle()
        for request in (renewal, ending, RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1)):
            yield f"gone {version}", told(side.ask("alice", request, renew_version))


def test_every_answer_is_the_same(sides: tuple[SecuredSide, SecuredSide]) -> None:
    """Owners, renewers, others, clients without a login: in each version."""
    theirs, ours = (list(play(side)) for side in sides)
    different = [f"{a}\n  {b}" for a, b in zip(theirs, ours, strict=True) if a != b]
    assert not different, "\n".join(different)
    assert len(theirs) > 60


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Return a file with alice's login."""
    file = tmp_path / "alice.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="alice" password="alice";\n'
    )
    return str(file)


def shown(text: str) -> list[str]:
    """Return a tool's lines without ids and times."""
    lines = []
    for line in text.splitlines():
        for pattern in (r"[\w+/]{80,}={0,2}", r"[\w-]{22}", r"\d{4}-\d\d-\d\dT\d\d:\d\d"):
            line = re.sub(pattern, "*", line)  # noqa: PLW2901 - each pattern in turn
        lines.append(line.rstrip())
    return lines


def test_the_tools_print_the_same(
    sides: tuple[SecuredSide, SecuredSide],
    kafka: Kafka,
    config: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kafka's tool and ours, both on our node: create, describe, renew, expire."""
    bootstrap = sides[1].bootstrap

    def java(*words: str) -> str:
        arguments = ("--bootstrap-server", bootstrap, "--command-config", config, *words)
        done = kafka.run("org.apache.kafka.tools.DelegationTokenCommand", *arguments)
        return done.stdout

    def ours(*words: str) -> str:
        main(
            [
                "delegation-tokens",
                "--bootstrap-server",
                bootstrap,
                "--command-config",
                config,
                *words,
            ]
        )
        return capsys.readouterr().out

    creation = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    made = java(*creation)
    assert shown(made) == shown(ours(*creation))
    found = re.search(r"[\w+/]{80,}={0,2}", made)
    assert found is not None
    hmac = found[0]
    for words in (
        ("--describe", "--owner-principal", "User:alice"),
        ("--renew", "--renew-time-period", "-1", "--hmac", hmac),
        ("--expire", "--expiry-time-period", "100000", "--hmac", hmac),
    ):
        assert shown(java(*words)) == shown(ours(*words)), words


def test_kafkas_client_logs_in_with_our_token(
    sides: tuple[SecuredSide, SecuredSide], kafka: Kafka, tmp_path: Path
) -> None:
    """By both SCRAM mechanisms; the password is the HMAC."""
    made = sides[1].ask("alice", create(3), 3)
    sides[1].settle()
    password = base64.b64encode(bytes(made.hmac)).decode()
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        file = tmp_path / f"{mechanism}.properties"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="{made.token_id}" '
            f'password="{password}" tokenauth="true";\n'
        )
        arguments = ("--bootstrap-server", sides[1].bootstrap, "--command-config", str(file))
        done = kafka.run("org.apache.kafka.tools.TopicCommand", "--list", *arguments)
        assert "Exception" not in done.stdout
