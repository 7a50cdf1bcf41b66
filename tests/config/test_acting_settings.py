"""The table of settings without effect in docs/configuration.md agrees with the code."""

from __future__ import annotations

import re
import socket
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from ottla.config.broker.config import BrokerConfig
from ottla.config.topic import BROKER_SYNONYMS
from ottla.server.broker.coordinator_parts import _INTERVALS
from ottla.testing.cluster import Cluster

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ottla"
OTHER_PLACES = {"clients", "spark", "cli", "config", "testing"}
EXCEPTIONS = {
    "transaction.partition.verification.enable",
    *(
        f"{topic}.{name}"
        for topic in ("transaction.state.log", "share.coordinator.state.topic")
        for name in ("min.isr", "num.partitions", "replication.factor", "segment.bytes")
    ),
    "group.streams.max.standby.replicas",
    *(
        f"group.share.{bound}.{name}"
        for bound in ("min", "max")
        for name in (
            "delivery.count.limit",
            "partition.max.record.locks",
            "record.lock.duration.ms",
        )
    ),
}
"""They are read though a pattern of the table has them."""

READ_IN_PARTS = {
    *(f"sasl.oauthbearer.assertion.claim.{name}" for name in ("aud", "iss", "sub")),
    *(f"sasl.oauthbearer.client.credentials.client.{name}" for name in ("id", "secret")),
    *(
        setting.replace("_", ".")
        for intervals in _INTERVALS.values()
        for _, _, *settings in intervals
        for setting in settings
    ),
}
"""The code puts these names together."""


def _table() -> list[str]:
    text = (ROOT / "docs" / "configuration.md").read_text()
    section = text.split("## Settings without effect")[1].split("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")]
    words = [word for row in rows for word in re.findall(r"`([^`]+)`", row)]
    return [word for word in words if not word.startswith(".")]


def _with_prefix(text: str) -> str:
    """Write out the names that a module puts together with a constant that ends in a dot."""
    for name, prefix in re.findall(r'^(_[A-Z]+): Final = "([\w.]+\.)"', text, re.MULTILINE):
        text = text.replace(f'{name} + "', f'"{prefix}').replace(f"{{{name}}}", prefix)
    return text


@cache
def _read_names() -> frozenset[str]:
    """Return attributes and quoted names in the text of everything that could act on a setting."""
    files = [
        path
        for path in SOURCE.rglob("*.py")
        if not OTHER_PLACES & set(path.relative_to(SOURCE).parts)
    ]
    tables = SOURCE / "config" / "broker"
    files += [tables / name for name in ("endpoints.py", "unsupported.py", "config.py")]
    files.append(SOURCE / "config" / "providers.py")
    text = "\n".join(_with_prefix(path.read_text()) for path in files)
    quoted = re.findall(r"""[\"'=]([\w.]+)(?=[\"'=])""", text)
    return frozenset([*re.findall(r"\.\w+", text), *quoted])


def _is_read(name: str) -> bool:
    return not {f".{name.replace('.', '_')}", name}.isdisjoint(_read_names())


def test_what_the_table_does_not_name_acts() -> None:
    """Each public setting is in the table, is read, or is the default of a topic setting."""
    table = _table()
    defaults = {
        name
        for topic_name, names in BROKER_SYNONYMS.items()
        if _is_read(topic_name)
        for name in names
    }
    silent = [
        name
        for name, definition in BrokerConfig.keys.items()
        if not definition.internal
        and not any(fnmatchcase(name, pattern) for pattern in table)
        and not _is_read(name)
        and name not in defaults | READ_IN_PARTS
    ]
    assert silent == []


def test_what_the_table_names_is_not_read() -> None:
    """An implemented setting is not in the table; each pattern matches a setting."""
    public = [name for name, one in BrokerConfig.keys.items() if not one.internal]
    assert len(public) == 340
    for pattern in _table():
        names = [name for name in public if fnmatchcase(name, pattern)]
        assert names, pattern
        acting = [name for name in names if _is_read(name)]
        assert not set(acting) - EXCEPTIONS, pattern


@pytest.mark.parametrize("given", [{}, {"socket.receive.buffer.bytes": "8192"}])
def test_buffers_of_sockets_are_what_somebody_set(given: dict[str, str]) -> None:
    """Without a setting the system decides; Linux doubles a given size."""
    with Cluster(config=given) as cluster:
        size = cluster.run(lambda node: _receive_bytes(node._listeners.open[0]._socket))
    with socket.socket() as plain:
        untouched = plain.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert size == (2 * 8192 if given else untouched)


def _receive_bytes(listening: socket.socket | None) -> int:
    assert listening is not None
    return listening.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
