"""The settings and commands of docs/security.md, on a node."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ottla import Admin
from ottla.config.broker import parse_broker_config
from ottla.config.properties import parse_properties
from ottla.server.node.security import security_problems
from ottla.testing.cluster import Cluster
from tests.cli.running import run
from tests.documents.snippets import Snippet, snippets

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_commands_of_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node with the document's settings: commands make a user and give it rights."""
    found: list[Snippet] = snippets("docs/security.md")
    settings = parse_properties(next(one.text for one in found if one.text.startswith("node.id")))
    assert not list(security_problems(parse_broker_config(settings)))
    del settings["log.dirs"]
    settings |= parse_properties(
        next(one.text for one in found if one.text.startswith("authorizer"))
    )
    settings["super.users"] += ";User:alice;User:carol"
    settings["listeners"] = "LOGIN://localhost:0,CONTROLLER://localhost:0"
    command = next(one.text for one in found if "--add-config" in one.text)
    login = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    login += 'sasl.jaas.config=a.PlainLoginModule required username="alice" password="secret";\n'
    (tmp_path / "admin.properties").write_text(login)
    with Cluster(config=settings) as cluster:
        command = command.replace("\\\n", " ").replace("localhost:9092", cluster.bootstrap)
        words = shlex.split(command.replace("admin.properties", str(tmp_path / "admin.properties")))
        status, out, err = run(capsys, *words[1:])
        assert (status, out, err) == (0, "Completed updating config for user carol.\n", "")
        allow, listing = (
            next(one.text for one in found if one.text.startswith("ottla acls"))
            .replace("\\\n", " ")
            .replace("localhost:9092", cluster.bootstrap)
            .replace("admin.properties", str(tmp_path / "admin.properties"))
            .splitlines()
        )
        status, out, _ = run(capsys, *shlex.split(allow)[1:])
        assert status == 0
        assert out.startswith("Adding ACLs for resource `ResourcePattern(resourceType=TOPIC")
        status, out, _ = run(capsys, *shlex.split(listing)[1:])
        assert out.count("principal=User:carol, host=*, operation=READ, permissionType=ALLOW") == 2
        with Admin(
            bootstrap_servers=cluster.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="carol",
            sasl_password="secret",
        ) as admin:
            admin.list_topics()
