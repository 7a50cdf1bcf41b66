"""The table of weaknesses in docs/security.md, and two rules that have no other test."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla import Admin
from ottla.clients.admin.configs import ConfigResource
from ottla.clients.admin.configs import ResourceType as ConfigType
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ottla.security.authorizer import StandardAuthorizer
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| ([\d, -]+) \|.*`(tests/[\w/]+\.py)` `(test_\w+)` \|$", re.MULTILINE)


def test_each_row_names_a_test() -> None:
    """And the test exists."""
    rows = ROW.findall((ROOT / "docs" / "security.md").read_text())
    assert len(rows) >= 10
    for _, file, name in rows:
        functions = ast.parse((ROOT / file).read_text()).body
        assert name in {one.name for one in functions if isinstance(one, ast.FunctionDef)}, name


ENTRIES = [
    Acl(ResourceType.TOPIC, pattern, name, user, "*", operation, permission)
    for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    for name in ("a", "ab")
    for user in ("User:u", "User:*")
    for operation in (Operation.READ, Operation.ALL)
    for permission in (Permission.ALLOW, Permission.DENY)
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(ENTRIES) - 1), st.booleans()), max_size=30))
def test_removing_an_entry_removes_no_other(steps: list[tuple[int, bool]]) -> None:
    """Added and removed in any order, what is left decides as if it alone had been added."""
    changed = StandardAuthorizer(())
    changed.is_loaded = True
    left: dict[int, Acl] = {}
    for index, is_added in steps:
        if is_added:
            changed.add(index, ENTRIES[index])
            left[index] = ENTRIES[index]
        else:
            changed.remove(index)
            left.pop(index, None)
    fresh = StandardAuthorizer(())
    fresh.is_loaded = True
    for index, entry in left.items():
        fresh.add(index, entry)
    assert len(changed) == len(left)
    for name in ("a", "ab", "abc", "b"):
        for user in ("User:u", "User:v"):
            asked = user, "h", Operation.READ, ResourceType.TOPIC, name
            assert changed.decide(*asked).is_allowed == fresh.decide(*asked).is_allowed


def test_a_value_from_the_network_is_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """AlterConfigs stores the text of a variable, although the node has providers."""
    monkeypatch.setenv("OTTLA_TEST_SECRET", "86400001")
    provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    config = {"config.providers": "env", "config.providers.env.class": provider}
    text = "${env:OTTLA_TEST_SECRET}"
    node = ConfigResource(ConfigType.BROKER, "1")
    with Cluster(config=config) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.alter_configs({node: {"own.plug.in": text}})
        stored = cluster.run(lambda one: dict(one.broker.metadata.config.overrides))
        assert stored.get("own.plug.in", text) == text
        assert "86400001" not in str(dict(stored))
