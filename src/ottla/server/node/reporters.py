"""The plug-ins of metric.reporters while the node runs: loaded, exchanged, closed.

Kafka: kafka.server.DynamicMetricsReporters.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ottla.config.reconfiguration import wrapped
from ottla.server.node.plugins import (
    JAVA_BUILT_IN,
    REPORTER_METHODS,
    PluginError,
    load_class,
    load_plugin,
)

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.server.broker.telemetry import Telemetry

log = logging.getLogger("ottla.node")


class Reporters:
    """One object a class; those with `export_metrics` receive clients' metrics."""

    def __init__(self, config: BrokerConfig) -> None:
        """Load the classes; PluginError names all that cannot be loaded."""
        self._plugins: dict[str, Any] = {}
        errors = self._load(config)
        if errors:
            self.close()
            raise PluginError("; ".join(map(str, errors)))

    def _load(self, config: BrokerConfig) -> list[PluginError]:
        """Load the classes that can be loaded; return the errors of the others."""
        errors = []
        for name in _names(config):
            if name in self._plugins:
                continue
            try:
                self._plugins[name] = load_plugin(name, REPORTER_METHODS, config.given)
            except PluginError as error:
                errors.append(error)
        return errors

    @property
    def receivers(self) -> list[Any]:
        """The plug-ins that receive clients' metrics."""
        return [
            one for one in self._plugins.values() if callable(getattr(one, "export_metrics", None))
        ]

    def apply(self, config: BrokerConfig, telemetry: Telemetry) -> None:
        """Load classes added to metric.reporters and close removed ones."""
        names = _names(config)
        for name in [name for name in self._plugins if name not in names]:
            _close(name, self._plugins.pop(name))
        for error in self._load(config):  # its check could still load it
            log.error(
                "a metrics reporter is not loaded: %s; install it or correct metric.reporters",
                error,
                extra={"event": "reporter.lost"},
            )
        telemetry.receive_with(self.receivers)

    def close(self) -> None:
        """Close them all."""
        while self._plugins:
            _close(*self._plugins.popitem())


def reporters_refusal(current: BrokerConfig, proposed: BrokerConfig) -> str | None:
    """Return Kafka's text when a class of changed metric.reporters cannot be loaded."""
    if proposed.metric_reporters == current.metric_reporters:
        return None
    try:
        for name in _names(proposed):
            load_class(name, REPORTER_METHODS)
    except PluginError:
        return wrapped(
            "Validation of dynamic config update of Set(metric.reporters) failed with class class "
            "kafka.server.DynamicMetricsReporters"
        )
    return None


def _names(config: BrokerConfig) -> list[str]:
    return [name for name in config.metric_reporters if name and name not in JAVA_BUILT_IN]


def _close(name: str, plugin: Any) -> None:
    try:
        plugin.close()
    except Exception as error:
        text = "metrics reporter %s failed to close; the node continues, correct the plug-in"
        log.exception(text, name, exc_info=error, extra={"event": "reporter.not_closed"})
