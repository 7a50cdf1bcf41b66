"""References of connectors to secrets, `${file:/path:key}`: resolved where something starts.

Topics, answers and statuses have the reference. A text that a connector makes, as the trace of its
failure or the settings of its tasks, gets the reference back in place of the value.

Kafka: org.apache.kafka.connect.runtime.{WorkerConfigTransformer, AbstractHerder.reverseTransform}.
"""

from __future__ import annotations

import json
import logging
import os
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ottla.config.problems import ConfigErrors
from ottla.config.providers import ConfigTransformer, resolve
from ottla.connect.errors import ConnectException
from ottla.connect.metrics import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.connect.metrics import MBean

_SHORTEST: Final = 4
"""The shortest value that is looked for in texts: shorter ones are in many of them by chance."""
log = logging.getLogger("ottla.connect")


def worker_settings(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a worker's file with resolved references; ConfigErrors."""
    resolved = resolve(texts, os.environ)
    if resolved.problems:
        raise ConfigErrors(resolved.problems)
    return resolved.values


class Secrets(logging.Filter):
    """The references of a worker's connectors; as a filter it keeps their values out of the log."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Take the worker's settings; ConfigErrors for providers that cannot be made."""
        super().__init__()
        self._transformer = ConfigTransformer(settings, os.environ)
        if self._transformer.problems:
            raise ConfigErrors(self._transformer.problems)
        self._references: dict[str, str] = {}
        """By all values that were read since the start: a task may still have an older one."""

    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return a configuration with its values; ConnectException if one cannot be read."""
        resolved = self._transformer.resolve(config)
        if resolved.problems:
            raise ConnectException("; ".join(it.message for it in resolved.problems))
        for value, reference in resolved.references.items():
            # a connector's settings lose blanks and the end of a file's last line; a text of
            # several lines, as a key, is printed a line at a time
            for part in {value, value.strip(), *map(str.strip, value.splitlines())}:
                if len(part) >= _SHORTEST:
                    for form in (part, repr(part)[1:-1], json.dumps(part)[1:-1], quote(part, "")):
                        self._references[form] = reference
        return resolved.values

    def conceal(self, text: str) -> str:
        """Return a text with references in place of their values."""
        # the longest first: one may be in another
        for value in sorted(self._references, key=len, reverse=True):
            if value in text:
                text = text.replace(value, self._references[value])
        return text

    def conceal_beans(self, beans: list[MBean]) -> list[MBean]:
        """Return beans; the texts of those that tasks make have references."""
        if not self._references:
            return beans
        conceal = cache(self.conceal)  # partitions of a mirror share most of their texts

        def concealed(texts: Mapping[str, Any]) -> dict[str, Any]:
            return {name: conceal(it) if isinstance(it, str) else it for name, it in texts.items()}

        return [
            it
            if it.domain == DOMAIN
            else it._replace(tags=concealed(it.tags), attributes=concealed(it.attributes))
            for it in beans
        ]

    def conceal_error(self, error: Exception) -> Exception:
        """Return an error whose text has references; one of Connect's stays what it is."""
        text = str(error)
        concealed = self.conceal(text)
        if concealed == text:
            return error
        if not isinstance(error, ConnectException):
            return ConnectException(concealed)
        error.args = (concealed,)  # others of its kind may have more than a text
        return error

    def conceal_answer(self, infos: Mapping[str, Any], config: Mapping[str, str]) -> dict[str, Any]:
        """Return the answer of a validation with the references of a configuration."""
        concealed: dict[str, Any] = self._walk(infos)
        for info in concealed["configs"]:
            value = info["value"]
            if "${" in config.get(value["name"], "") and value["value"] not in {None, "[hidden]"}:
                value["value"] = config[value["name"]]
        return concealed

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.conceal(value)
        if isinstance(value, list):
            return [self._walk(it) for it in value]
        return (
            {key: self._walk(it) for key, it in value.items()} if isinstance(value, dict) else value
        )

    def task_configs(
        self, config: Mapping[str, str], configs: Iterable[Mapping[str, str]]
    ) -> list[dict[str, str]]:
        """Return the settings of tasks as they are stored; `config` is their connector's."""
        own = {name: text for name, text in config.items() if "${" in text}
        return [
            {name: own.get(name) or self.conceal(text) for name, text in it.items()}
            for it in configs
        ]

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep a line of the log, without values."""
        if not self._references:
            return True
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a handler would print the arguments as they are
            message = record.msg = f"{record.msg} {record.args}"
            record.args = None
        concealed = self.conceal(message)
        if concealed != message:
            record.msg, record.args = concealed, None
        if record.exc_info:
            trace = logging.Formatter().formatException(record.exc_info)
            concealed = self.conceal(trace)
            if concealed != trace:
                record.exc_info = record.exc_text = None
                record.msg, record.args = f"{record.getMessage()}\n{concealed}", None
        return True
