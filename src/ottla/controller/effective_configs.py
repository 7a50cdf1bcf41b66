"""The effective settings of a new topic in the CreateTopics response.

Kafka: KafkaConfigSchema.resolveEffectiveTopicConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.config.topic import BROKER_SYNONYMS, broker_defaults, definition_of, public_names
from ottla.protocol.apis.create_topics import CreateTopicsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.broker import BrokerConfig

TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5

Entry: TypeAlias = CreateTopicsResponse.CreatableTopicResult.CreatableTopicConfigs


class EffectiveConfigs:
    """Resolved once for each request; topics without own settings share the entries."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        cluster_settings: Mapping[str, str],
        node_settings: Mapping[str, str],
    ) -> None:
        defaults = broker_defaults(config)
        self._entries: dict[str, Entry] = {}
        for name in sorted(public_names()):
            definition = definition_of(name)
            assert definition is not None, "a public name without a definition"
            value = definition.text(defaults.get(name, definition.default))
            source = DEFAULT_CONFIG
            for synonym in BROKER_SYNONYMS.get(name, ()):
                if synonym in node_settings:
                    value, source = node_settings[synonym], DYNAMIC_BROKER_CONFIG
                elif synonym in cluster_settings:
                    value, source = cluster_settings[synonym], DYNAMIC_DEFAULT_BROKER_CONFIG
                elif synonym in config.given:
                    source = STATIC_BROKER_CONFIG
                else:
                    continue
                break
            self._entries[name] = _entry(name, value, source)

    def of(self, own: Mapping[str, str]) -> list[Entry]:
        """Return all settings of a topic with the given own ones, sorted by name."""
        if not own:
            return list(self._entries.values())
        return [
            _entry(name, own[name], TOPIC_CONFIG) if name in own else entry
            for name, entry in self._entries.items()
        ]


def _entry(name: str, value: str | None, source: int) -> Entry:
    return Entry(name=name, value=value, read_only=False, config_source=source, is_sensitive=False)
