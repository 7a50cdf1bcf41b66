"""Decisions of the authorizer: against a plain list of entries, and Kafka's rules one by one."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.security.acl import (
    OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.authorizer import StandardAuthorizer
from ottla.security.principal import Principal
from ottla.server.metrics.node import AuthorizationMetrics

ALICE = Principal("User", "alice")
TOPIC = ResourceType.TOPIC
HOST = "192.0.2.1"
NAMES = ("a", "ab", "abc", "b", "*")
IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def acl(
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    *,
    name: str = "abc",
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = WILDCARD,
) -> Acl:
    """Return an entry of a topic."""
    return Acl(TOPIC, pattern, name, principal, host, operation, permission)


def authorizer(*acls: Acl, allows: bool = False) -> StandardAuthorizer:
    """Return an authorizer with these entries."""
    made = StandardAuthorizer(["User:root"], allows_without_acl=allows)
    made.is_loaded = True
    for number, one in enumerate(acls):
        made.add(number, one)
    return made


def may(found: StandardAuthorizer, operation: Operation, name: str = "abc") -> bool:
    """Whether alice may do this with a topic."""
    return found.authorize(ALICE, HOST, operation, TOPIC, name)


acls = st.builds(
    Acl,
    st.just(TOPIC),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(NAMES),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from([HOST, "192.0.2.2", WILDCARD]),
    st.sampled_from([Operation.ALL, *OPERATIONS[TOPIC]]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


def expected(entries: list[Acl], operation: Operation, name: str, *, allows: bool) -> bool:
    """Decide as Kafka's rules say, entry by entry."""
    of_resource = [
        one
        for one in entries
        if (
            name.startswith(one.resource_name)
            if one.pattern_type == PatternType.PREFIXED
            else one.resource_name in {name, WILDCARD}
        )
    ]
    if not of_resource:
        return allows
    fitting = [
        one
        for one in of_resource
        if one.principal in {"User:alice", "User:*"} and one.host in {HOST, WILDCARD}
    ]
    if any(
        one.permission == Permission.DENY and one.operation in {operation, Operation.ALL}
        for one in fitting
    ):
        return False
    enough = {operation, Operation.ALL} | IMPLYING.get(operation, set())
    return any(one.permission == Permission.ALLOW and one.operation in enough for one in fitting)


@settings(max_examples=150, deadline=None)
@given(st.lists(acls, max_size=8), st.data(), st.booleans())
def test_decisions_are_those_of_a_plain_list(
    entries: list[Acl],
    data: st.DataObject,
    allows: bool,  # noqa: FBT001 - drawn
) -> None:
    """Also after entries are removed, in any order: no outdated decision is remembered."""
    found = authorizer(*entries, allows=allows)
    left = dict(enumerate(entries))
    for number in [None, *data.draw(st.permutations(range(len(entries))))]:
        if number is not None:
            found.remove(number)
            del left[number]
        for operation in OPERATIONS[TOPIC]:
            for name in NAMES:
                wanted = expected([*left.values()], operation, name, allows=allows)
                assert may(found, operation, name) == wanted
    assert not found._literal
    assert not found._prefixed
    assert not any(found._lengths.values())


@pytest.mark.parametrize(
    ("entries", "operation", "is_allowed"),
    [
        ((), Operation.READ, False),
        ((acl(),), Operation.READ, True),
        ((acl(),), Operation.DESCRIBE, True),
        ((acl(),), Operation.WRITE, False),
        ((acl(Operation.ALL),), Operation.ALTER_CONFIGS, True),
        ((acl(Operation.CREATE),), Operation.DESCRIBE, False),
        ((acl(Operation.ALTER_CONFIGS),), Operation.DESCRIBE_CONFIGS, True),
        ((acl(), acl(permission=Permission.DENY)), Operation.READ, False),
        ((acl(), acl(permission=Permission.DENY)), Operation.DESCRIBE, True),
        ((acl(), acl(Operation.DESCRIBE, Permission.DENY)), Operation.DESCRIBE, False),
        ((acl(), acl(Operation.ALL, Permission.DENY)), Operation.DESCRIBE, False),
        ((acl(name="*"),), Operation.READ, True),
        ((acl(name="ab"),), Operation.READ, False),
        ((acl(name="ab", pattern=PatternType.PREFIXED),), Operation.READ, True),
        ((acl(name="abcd", pattern=PatternType.PREFIXED),), Operation.READ, False),
        ((acl(host="192.0.2.2"),), Operation.READ, False),
        ((acl(principal="User:*"),), Operation.READ, True),
        ((acl(principal="Group:alice"),), Operation.READ, False),
    ],
)
def test_rules(entries: tuple[Acl, ...], operation: Operation, is_allowed: bool) -> None:  # noqa: FBT001 - of the table
    """Deny first, implied operations, patterns, hosts and principals."""
    assert may(authorizer(*entries), operation) is is_allowed


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::5:0:1", "2001:db8:0:0:0:5:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("::", "0:0:0:0:0:0:0:0"),
        ("::1", "::1"),
    ],
)
def test_an_address_counts_as_java_writes_it(client: str, entry: str) -> None:
    """A DENY for an IPv6 address that Kafka's users wrote denies; another address is another."""
    found = authorizer(acl(), acl(permission=Permission.DENY, host=entry))
    assert not found.authorize(ALICE, client, Operation.READ, TOPIC, "abc")
    assert found.authorize(ALICE, "::2", Operation.READ, TOPIC, "abc")


def test_super_users_need_no_entry() -> None:
    """Also before the entries are loaded, when no one else is answered."""
    found = StandardAuthorizer(["User:root"])
    assert found.authorize(Principal("User", "root"), HOST, Operation.ALTER, TOPIC, "a")
    with pytest.raises(KafkaError, match="not loaded"):
        may(found, Operation.READ)


def test_denials_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Who, what, from where and on which resource."""
    with caplog.at_level(logging.INFO):
        may(authorizer(), Operation.WRITE)
    (line,) = caplog.messages
    assert line.startswith("Principal = User:alice is Denied operation = WRITE from host = ")
    assert line.endswith(
        "192.0.2.1 on resource = Topic:LITERAL:abc for request = none with resourceRefCount = 1 "
        "based on rule DefaultDeny"
    )


def test_another_entry_of_the_resource_ends_allow_everyone() -> None:
    """allow.everyone.if.no.acl.found holds for resources without any entry."""
    found = authorizer(acl(principal="User:bob"), allows=True)
    assert not may(found, Operation.READ)
    assert may(found, Operation.READ, "other")


@pytest.mark.parametrize(
    ("entries", "is_allowed"),
    [
        ((), False),
        ((acl(Operation.WRITE),), True),
        ((acl(Operation.WRITE), acl(Operation.WRITE, Permission.DENY)), False),
        ((acl(Operation.WRITE), acl(Operation.WRITE, Permission.DENY, name="*")), False),
        ((acl(Operation.WRITE, name="*"), acl(Operation.WRITE, Permission.DENY)), True),
        (
            (
                acl(Operation.WRITE, name="abc", pattern=PatternType.PREFIXED),
                acl(Operation.WRITE, Permission.DENY, name="ab", pattern=PatternType.PREFIXED),
            ),
            False,
        ),
        (
            (
                acl(Operation.WRITE, name="ab", pattern=PatternType.PREFIXED),
                acl(Operation.WRITE, Permission.DENY, name="abc", pattern=PatternType.PREFIXED),
            ),
            True,
        ),
    ],
)
def test_a_right_on_any_resource(entries: tuple[Acl, ...], is_allowed: bool) -> None:  # noqa: FBT001 - of the table
    """One ALLOW that no DENY covers as a whole."""
    found = authorizer(*entries)
    assert found.authorize_any(ALICE, HOST, Operation.WRITE, TOPIC) is is_allowed


def test_entries_for_all_resources_end_allow_everyone() -> None:
    """Of any resource as of one: an entry of another user on the wildcard names them all."""
    assert authorizer(allows=True).authorize_any(ALICE, HOST, Operation.WRITE, TOPIC)
    found = authorizer(acl(Operation.WRITE, name="*", principal="User:bob"), allows=True)
    assert not found.authorize_any(ALICE, HOST, Operation.WRITE, TOPIC)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        (PatternType.ANY, None, {"ab*", "abc", "*"}),
        (PatternType.MATCH, "abc", {"ab*", "abc", "*"}),
        (PatternType.MATCH, "b", {"*"}),
        (PatternType.LITERAL, "abc", {"abc"}),
        (PatternType.LITERAL, "*", {"*"}),
        (PatternType.PREFIXED, "ab", {"ab*"}),
        (PatternType.ANY, "ab", {"ab*"}),
    ],
)
def test_filters(pattern: PatternType, name: str | None, fits: set[str]) -> None:
    """MATCH finds what applies to a name, the others the entries themselves."""
    entries = {
        "ab*": acl(name="ab", pattern=PatternType.PREFIXED),
        "abc": acl(),
        "*": acl(name="*"),
    }
    wanted = AclFilter(TOPIC, pattern, name, None, None, Operation.ANY, Permission.ANY)
    assert {shown for shown, one in entries.items() if wanted.fits(one)} == fits


def test_decisions_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Each one, remembered or not; what is allowed is a line at DEBUG only."""
    authorizer = StandardAuthorizer(["User:root"])
    authorizer.is_loaded = True
    entry = Acl(
        ResourceType.TRANSACTIONAL_ID,
        PatternType.PREFIXED,
        "t",
        "User:*",
        "*",
        Operation.ALL,
        Permission.DENY,
    )
    authorizer.add(1, entry)
    caplog.set_level(logging.DEBUG, "ottla.authorizer")
    for user in ("root", "alice", "alice"):
        principal = Principal("User", user)
        resource_type, key = ResourceType.TRANSACTIONAL_ID, ApiKey.END_TXN
        authorizer.authorize(principal, "h", Operation.READ, resource_type, "t", request=key)
    assert (authorizer.decision_count, authorizer.denied_count) == (3, 2)
    resource = "operation = READ from host = h on resource = TransactionalId:LITERAL:t"
    request = "for request = EndTxn with resourceRefCount = 1 based on rule"
    rule = (
        "MatchingAcl(acl=StandardAcl[resourceType=TRANSACTIONAL_ID, resourceName=t, "
        "patternType=PREFIXED, principal=User:*, host=*, operation=ALL, permissionType=DENY])"
    )
    assert [(one.levelname, one.getMessage()) for one in caplog.records[:2]] == [
        ("DEBUG", f"Principal = User:root is Allowed {resource} {request} SuperUser"),
        ("INFO", f"Principal = User:alice is Denied {resource} {request} {rule}"),
    ]
    metrics = AuthorizationMetrics(authorizer, now_s=0.0)
    metrics.tick(5.0)
    assert next(metrics.collect()).values == (1,)
    assert len(list(metrics.collect())) == 4
    assert list(AuthorizationMetrics(None, now_s=0.0).collect()) == []
