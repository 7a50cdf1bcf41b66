"""Settings of one listener: those with its prefix, else the node's.

Kafka: AbstractConfig.valuesWithPrefixOverride, ChannelBuilders.channelBuilderConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig


class ListenerSettings:
    """`listener.name.<name>.<setting>` of an immutable configuration."""

    __slots__ = ("config", "listener", "prefix")

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self.config = config
        self.listener = listener
        self.prefix = f"listener.name.{listener.lower()}."

    def own(self, name: str, mechanism: str | None = None) -> Any:
        """Return the listener's own value, None where it has none."""
        config, prefix = self.config, self.prefix
        if mechanism is not None:
            prefix += f"{mechanism.lower()}."
        full = prefix + name
        text = config.overrides.get(full, config.given.get(full))
        return None if text is None else config.keys[name].convert(text)

    def value(self, name: str, mechanism: str | None = None) -> Any:
        """Return the listener's value, for a mechanism where it has one, else the node's."""
        if mechanism is not None:
            found = self.own(name, mechanism)
            if found is not None:
                return found
        found = self.own(name)
        return self.config.value(name) if found is None else found
