"""The plug-ins of metric.reporters while the node runs: loaded, exchanged, closed.

Kafka: kafka.server.DynamicMetricsReporters.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ottla.config.reconfiguration import wrapped
from ottla.server.node.plugins import (
    JAVA_BUILT_IN,
    METRIC_REPORTERS,
    PLUGINS_GROUP,
    REPORTER_METHODS,
    PluginError,
    is_registered,
    load_class,
    load_plugin,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.config.broker import BrokerConfig
    from ottla.server.broker.telemetry import Telemetry
    from ottla.server.system.environment import RunInWorker

log = logging.getLogger("ottla.node")


class Reporters:
    """One object a class; those with `export_metrics` receive clients' metrics."""

    def __init__(self, config: BrokerConfig) -> None:
        """Load the classes; PluginError names all that cannot be loaded."""
        self._plugins: dict[str, Any] = {}
        self._requested = config
        self._imported: dict[str, PluginError | None] = dict.fromkeys(_names(config))
        """By name: why the class cannot be loaded, None where it was imported."""
        errors = self._load(config, _names(config))
        if errors:
            self.close()
            raise PluginError("; ".join(map(str, errors)))

    def _load(self, config: BrokerConfig, names: Iterable[str]) -> list[PluginError]:
        """Load the classes that can be loaded; return the errors of the others."""
        errors = []
        for name in names:
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

    def apply(self, config: BrokerConfig, telemetry: Telemetry, run: RunInWorker) -> None:
        """Close the reporters removed from metric.reporters; a worker imports added classes."""
        self._requested = config
        names = _names(config)
        for name in [name for name in self._plugins if name not in names]:
            _close(name, self._plugins.pop(name))
        telemetry.receive_with(self.receivers)
        added = [name for name in names if name not in self._plugins]
        if not added:
            return

        if all(self._imported.get(name, name) is None for name in added):
            self._add(config, added, telemetry)
            return

        def imported(_result: object, error: Exception | None) -> None:
            if error is not None:
                raise error
            if self._requested is config:  # else the later change has its own import
                self._add(config, added, telemetry)

        run(lambda: self._import(config, added), imported)

    def _add(self, config: BrokerConfig, names: Iterable[str], telemetry: Telemetry) -> None:
        lost = [error for name in names if (error := self._imported[name]) is not None]
        usable = [name for name in names if self._imported[name] is None]
        for error in (*lost, *self._load(config, usable)):  # its check could still load it
            log.error(
                "a metrics reporter is not loaded: %s; install it or correct metric.reporters",
                error,
                extra={"event": "reporter.lost"},
            )
        telemetry.receive_with(self.receivers)

    def refusal(self, current: BrokerConfig, proposed: BrokerConfig) -> str | None:
        """Return Kafka's text when a class of changed metric.reporters cannot be loaded.

        It imports: call it in a worker.
        """
        names = _names(proposed)
        if proposed.metric_reporters == current.metric_reporters:
            return None
        self._import(proposed, names)
        if all(self._imported[name] is None for name in names):
            return None
        return wrapped(
            "Validation of dynamic config update of Set(metric.reporters) failed with class class "
            "kafka.server.DynamicMetricsReporters"
        )

    def _import(self, config: BrokerConfig, names: Iterable[str]) -> None:
        """Import classes, in a worker; a name that is not of the node's file must be registered."""
        own = [one.strip() for one in str(config.given.get(METRIC_REPORTERS) or "").split(",")]
        for name in names:
            try:
                if name not in own and not is_registered(name):
                    raise PluginError(
                        f"class {name} cannot be loaded: a package must register it in the entry "
                        f"point group {PLUGINS_GROUP}, or the node's own settings name it"
                    )
                load_class(name, REPORTER_METHODS)
            except PluginError as error:
                self._imported[name] = error
            else:
                self._imported[name] = None

    def close(self) -> None:
        """Close them all."""
        while self._plugins:
            _close(*self._plugins.popitem())


def _names(config: BrokerConfig) -> list[str]:
    return [name for name in config.metric_reporters if name and name not in JAVA_BUILT_IN]


def _close(name: str, plugin: Any) -> None:
    try:
        plugin.close()
    except Exception as error:
        text = "metrics reporter %s failed to close; the node continues, correct the plug-in"
        log.exception(text, name, exc_info=error, extra={"event": "reporter.not_closed"})
