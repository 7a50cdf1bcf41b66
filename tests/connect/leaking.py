"""A connector that leaves its password wherever it can, for tests of secrets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.config.definition import HIGH, REQUIRED, ConfigDefinitions, Type
from ottla.connect.connector import SourceConnector, SourceTask
from ottla.connect.metrics import MBean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.connect.records import SourceRecord

seen: list[dict[str, str]] = []
"""The settings that tasks were started with."""


class _Never:
    def reason(self, name: str, value: Any) -> str | None:
        return f"{name} is {value}" if str(value).startswith("bad") else None

    def __str__(self) -> str:
        return "anything good"


class LeakingTask(SourceTask):
    """Fails with its password."""

    def start(self, config: Mapping[str, str]) -> None:
        """Note the settings, and leak."""
        seen.append(dict(config))
        self._url = config["url"]
        logging.getLogger("leaking").warning("connecting with %s", config["copy"])

    def poll(self) -> Sequence[SourceRecord] | None:
        """Leak more."""
        raise RuntimeError(f"cannot log in with {self._url!r}")

    def metrics(self) -> Sequence[MBean]:
        """Leak as a tag and as an attribute."""
        return [MBean("leaking", "Connection", {"url": self._url}, {"as": self._url, "count": 1})]

    def stop(self) -> None:
        """Do nothing."""


class LeakingConnector(SourceConnector):
    """Copies its password into the settings of its tasks."""

    task_class = LeakingTask
    definitions: ClassVar[ConfigDefinitions] = (
        ConfigDefinitions()
        .define("token", Type.STRING, REQUIRED, "A secret that is no password.", _Never())
        .define("login", Type.PASSWORD, REQUIRED, "A password.", importance=HIGH)
    )

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings."""
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        """Make one task."""
        del tasks_max
        login = self._config["login"]
        return [{**self._config, "copy": login, "url": f"db://me:{login}@host/{login}"}]

    def stop(self) -> None:
        """Do nothing."""
