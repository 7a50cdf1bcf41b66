"""The settings and commands of docs/security.md, on a node."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from ottla.config.broker import parse_broker_config
from ottla.config.properties import parse_properties
from ottla.server.node.settings import security_problems
from ottla.testing.cluster import Cluster
from tests.cli.running import run
from tests.documents.snippets import Snippet, section, snippets
from tests.ports import free_ports
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence


PAGE, TEN = "docs/security.md", "Ten commands"
BASH = "/bin/bash"


def test_the_commands_of_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node with the document's settings: commands make a user and give it rights."""
    first = section(PAGE, TEN)
    found: list[Snippet] = [one for one in snippets(PAGE) if one not in first]
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


@pytest.mark.conformance
def test_ten_commands_from_nothing(tmp_path: Path) -> None:
    """They end with alice's record, which she has sent and read over TLS."""
    keys, settings, client, commands = section(PAGE, TEN)
    ports = free_ports(2)
    (tmp_path / "server.properties").write_text(with_ports(settings.text, ports))
    (tmp_path / "admin.properties").write_text(client.text)
    (tmp_path / "alice.properties").write_text(client.text.replace("admin", "alice"))
    lines = with_ports(keys.text + commands.text, ports).splitlines()
    assert len(lines) == 10
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    node: subprocess.Popen[str] | None = None
    output = ""
    try:
        for line in lines:
            if line.endswith("&"):
                words = [*shlex.split(line.removesuffix("&")), "--ready-file", "ready"]
                node = subprocess.Popen(
                    words, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, text=True
                )
                wait_for((tmp_path / "ready").exists)
                continue
            done = subprocess.run(
                [BASH, "-c", line],
                check=False,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
            )
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            output = done.stdout
    finally:
        if node is not None:
            node.send_signal(signal.SIGTERM)
            node.wait(WAIT_S)
    assert output == "hello\n"


def with_ports(text: str, ports: Sequence[int]) -> str:
    """Return a snippet with other ports."""
    for shown, port in zip((9092, 9093), ports, strict=True):
        text = text.replace(f"localhost:{shown}", f"localhost:{port}")
    return text
