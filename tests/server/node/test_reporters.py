"""The plug-ins of metric.reporters, without a node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from ottla.config.broker import parse_broker_config
from ottla.server.broker.telemetry import Telemetry
from ottla.server.node.plugins import PluginError
from ottla.server.node.resources import Reporters
from tests.controller.harness import PROPERTIES
from tests.server.node.receivers import Receiver, register

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.config.broker import BrokerConfig

RECEIVER = "tests.server.node.receivers.Receiver"


def in_this_thread(job: Callable[[], Any], done: Callable[[Any, None], None]) -> None:
    """Run a worker's job at once."""
    done(job(), None)


def wanting(*names: str) -> BrokerConfig:
    """Return a configuration with these reporters."""
    return parse_broker_config({**PROPERTIES, "metric.reporters": ",".join(names)})


def test_a_class_that_is_lost_keeps_no_other_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those behind one that fails to load are loaded; each that fails is named."""
    (tmp_path / "reporter_that_breaks.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    names = "reporter_that_breaks.One", RECEIVER, "tests.server.node.receivers.Gone"
    reporters = Reporters(wanting())
    telemetry = Telemetry(1000, lambda _run, _done: None)
    reporters.apply(wanting(*names), telemetry, in_this_thread)
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


def test_a_name_from_the_network_imports_no_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only classes that a package registers are imported; those of the node's file stay usable."""
    (tmp_path / "some_installed_package.py").write_text("class Anything: ...")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    register(monkeypatch, RECEIVER)
    reporters = Reporters(wanting())
    refused = reporters.refusal(wanting(), dynamic("some_installed_package.Anything"))
    assert "DynamicMetricsReporters" in str(refused)
    reporters.apply(
        dynamic("some_installed_package.Anything"),
        Telemetry(1000, lambda _run, _done: None),
        in_this_thread,
    )
    assert "some_installed_package" not in sys.modules
    assert reporters.refusal(wanting(), dynamic(RECEIVER)) is None
    reporters.close()


def dynamic(name: str) -> BrokerConfig:
    """Return a configuration whose reporter was set over the network."""
    return wanting().with_dynamic({"metric.reporters": name})
