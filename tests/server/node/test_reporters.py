"""The plug-ins of metric.reporters, without a node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ottla.config.broker import parse_broker_config
from ottla.server.broker.telemetry import Telemetry
from ottla.server.node.plugins import PluginError
from ottla.server.node.reporters import Reporters
from tests.controller.harness import PROPERTIES
from tests.server.node.receivers import Receiver

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.config.broker import BrokerConfig

RECEIVER = "tests.server.node.receivers.Receiver"


def wanting(*names: str) -> BrokerConfig:
    """Return a configuration with these reporters."""
    return parse_broker_config({**PROPERTIES, "metric.reporters": ",".join(names)})


def test_a_class_that_is_lost_keeps_no_other_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those behind one that fails to load are loaded; each that fails is named."""
    (tmp_path / "reporter_that_breaks.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    reporters = Reporters(wanting())
    telemetry = Telemetry(1000, lambda _run, _done: None)
    reporters.apply(
        wanting("reporter_that_breaks.One", RECEIVER, "tests.server.node.receivers.Gone"), telemetry
    )
    assert [type(one) for one in reporters.receivers] == [Receiver]
    assert telemetry.has_receiver
    first, second = (one for one in caplog.messages if "cannot be loaded" in one)
    assert "reporter_that_breaks.One cannot be loaded (no licence)" in first
    assert "tests.server.node.receivers.Gone cannot be loaded" in second
    reporters.close()


def test_a_start_names_all_that_fail_and_closes_the_rest() -> None:
    """What could be loaded is closed when the node does not start for another."""
    before = Receiver.open_count
    with pytest.raises(PluginError, match=r"receivers\.Gone cannot.*receivers\.Lost cannot"):
        Reporters(
            wanting(
                "tests.server.node.receivers.Gone", RECEIVER, "tests.server.node.receivers.Lost"
            )
        )
    assert Receiver.open_count == before
