"""The configuration of a node: typed values, addresses, and unknown names.

Kafka: kafka.server.KafkaConfig. The object is immutable; a dynamic change makes a new one through
`with_dynamic`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ottla.config.broker.endpoints import (
    AddressError,
    HostAndPort,
    ListenerEndpoint,
    SecurityProtocol,
    StaticVoter,
    parse_bootstrap_servers,
    parse_listeners,
    parse_protocol,
    parse_security_map,
    parse_voters,
)
from ottla.config.broker.groups import (
    ClassicGroupSettings,
    ConsumerGroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    TransactionSettings,
)
from ottla.config.broker.log import CleanerSettings, LogSettings
from ottla.config.broker.network import BrokerSecuritySettings, NetworkSettings
from ottla.config.broker.quorum import NodeSettings, QuorumSettings
from ottla.config.broker.remote_log import (
    METADATA_CLIENTS,
    RemoteLogSettings,
    RemoteMetadataSettings,
)
from ottla.config.broker.replication import MetricSettings, QuotaSettings, ReplicationSettings
from ottla.config.definition import Given
from ottla.config.own import OwnSettings
from ottla.config.problems import ConfigProblem, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self, TypeVar

    from ottla.config.definition import ConfigTable

    C = TypeVar("C", bound=ConfigTable)

# Names with these prefixes belong to one listener or to a plug-in and are in no table.
OPEN_NAMES = (
    "super.users",
    "allow.everyone.if.no.acl.found",
    "org.apache.kafka.sasl.oauthbearer.allowed.urls",
    "org.apache.kafka.sasl.oauthbearer.allowed.files",
)
"""Settings of the authorizer, which are in no table of Kafka's either; two Java properties."""
OPEN_PREFIXES = ("listener.name.", "config.providers.")

_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000


class BrokerConfig(
    NodeSettings,
    NetworkSettings,
    QuorumSettings,
    LogSettings,
    CleanerSettings,
    ReplicationSettings,
    ClassicGroupSettings,
    ConsumerGroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    TransactionSettings,
    QuotaSettings,
    MetricSettings,
    RemoteLogSettings,
    BrokerSecuritySettings,
):
    """Every setting of a node as an attribute (dots become underscores), and derived values.

    `given` holds the texts the node was started with, `overrides` the stored dynamic changes. The
    derived attributes are listeners and addresses as typed values, the retention and roll times
    with their synonyms resolved, and the unknown names.
    """

    security_protocols: Mapping[str, SecurityProtocol]
    endpoints: tuple[ListenerEndpoint, ...]
    advertised_endpoints: tuple[ListenerEndpoint, ...]
    inter_broker_endpoint_name: str
    voters: tuple[StaticVoter, ...]
    bootstrap_controllers: tuple[HostAndPort, ...]
    address_problems: tuple[ConfigProblem, ...]

    def __init__(
        self,
        values: Mapping[str, Any],
        given: Mapping[str, Any],
        overrides: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(values, given)
        self.overrides = Given(overrides)
        self.own = OwnSettings(OwnSettings.definitions.read(given).values, given)
        problems: list[ConfigProblem] = []
        self._read_addresses(problems)
        self._read_inter_broker_listener(problems)
        self.address_problems = tuple(problems)

    @property
    def is_broker(self) -> bool:
        """Whether this node stores partitions."""
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether this node takes part in the quorum of controllers."""
        return "controller" in self.process_roles

    @property
    def has_other_controllers(self) -> bool:
        """Whether the settings name more than one controller."""
        named = {*self.controller_quorum_voters, *self.controller_quorum_bootstrap_servers}
        return len(named) > 1

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The directories of the logs, by log.dirs or log.dir."""
        return self.log_dirs if self.log_dirs is not None else self.log_dir

    @property
    def metadata_directory(self) -> str:
        """The directory of the metadata log."""
        return self.metadata_log_dir or self.data_directories[0]

    @property
    def broker_endpoints(self) -> tuple[ListenerEndpoint, ...]:
        """The listeners that serve clients and brokers."""
        return tuple(endpoint for endpoint in self.endpoints if not self._controllers_own(endpoint))

    @property
    def controller_endpoints(self) -> tuple[ListenerEndpoint, ...]:
        """The listeners that serve the quorum."""
        return tuple(endpoint for endpoint in self.endpoints if self._controllers_own(endpoint))

    @property
    def advertised_controller_endpoints(self) -> tuple[ListenerEndpoint, ...]:
        """Where others reach this controller: as advertised, else where it listens."""
        given: dict[str, ListenerEndpoint] = {}
        if self.advertised_listeners is not None:
            advertised = parse_listeners(
                self.advertised_listeners, self.security_protocols, distinct_ports=False
            )
            given = {address.listener: address for address in advertised}
        return tuple(
            given.get(endpoint.listener, endpoint) for endpoint in self.controller_endpoints
        )

    @property
    def advertised_controller_endpoint(self) -> ListenerEndpoint:
        """Where other controllers reach this one, on the first of controller.listener.names."""
        name = self.controller_listener_names[0].upper()
        return next(
            endpoint
            for endpoint in self.advertised_controller_endpoints
            if endpoint.listener == name
        )

    def _controllers_own(self, endpoint: ListenerEndpoint) -> bool:
        return endpoint.listener in {name.upper() for name in self.controller_listener_names}

    @property
    def retention_time_ms(self) -> int:
        """The retention time, by ms, minutes or hours; -1 has no limit."""
        milliseconds: int = _first(
            self.log_retention_ms,
            (
                None
                if self.log_retention_minutes is None
                else self.log_retention_minutes * _MS_PER_MINUTE
            ),
            self.log_retention_hours * _MS_PER_HOUR,
        )
        return -1 if milliseconds < 0 else milliseconds

    @property
    def roll_time_ms(self) -> int:
        """Time before a new segment is rolled, by ms or hours."""
        return _first(self.log_roll_ms, self.log_roll_hours * _MS_PER_HOUR)

    @property
    def roll_jitter_time_ms(self) -> int:
        """Random jitter of that time, by ms or hours."""
        return _first(self.log_roll_jitter_ms, self.log_roll_jitter_hours * _MS_PER_HOUR)

    @property
    def flush_time_ms(self) -> int:
        """Time after which a partition is flushed, by its own setting or that of the scheduler."""
        return _first(self.log_flush_interval_ms, self.log_flush_scheduler_interval_ms)

    @property
    def remote_metadata(self) -> RemoteMetadataSettings:
        """The settings of the topic __remote_log_metadata, which are given after a prefix."""
        given = self.given_after(self.remote_log_metadata_manager_impl_prefix)
        return RemoteMetadataSettings(RemoteMetadataSettings.definitions.read(given).values, given)

    def remote_metadata_client(self, kind: type[C], name: str) -> C:
        """Return the settings of that topic's "producer", "consumer" or "admin" client.

        Those of all three come first. Values that are none are left out.
        """
        prefix = self.remote_log_metadata_manager_impl_prefix
        given = self.given_after(f"{prefix}{METADATA_CLIENTS['common.client']}")
        given |= self.given_after(f"{prefix}{METADATA_CLIENTS[name]}")
        return kind(kind.definitions.read(given).values, given)

    def given_after(self, prefix: str) -> dict[str, str]:
        """Return the given texts whose names have a prefix, by the rest of the name."""
        return {
            name.removeprefix(prefix): str(text)
            for name, text in self.given.items()
            if name.startswith(prefix)
        }

    @property
    def unknown_settings(self) -> tuple[ConfigProblem, ...]:
        """The given names that neither Kafka nor Ottla has, each with the nearest known one."""
        prefix = self.remote_log_metadata_manager_impl_prefix
        of_metadata = [f"{prefix}{name}" for name in RemoteMetadataSettings.keys]
        known = {*self.keys, *OwnSettings.keys, *of_metadata}
        return tuple(
            unknown(name, (None if value is None else str(value)), known)
            for name, value in self.given.items()
            if name not in known and not self._is_open(name)
        )

    def _is_open(self, name: str) -> bool:
        if name in OPEN_NAMES:
            return True
        prefixes = (
            *OPEN_PREFIXES,
            self.remote_log_storage_manager_impl_prefix,
            *(
                f"{self.remote_log_metadata_manager_impl_prefix}{client}"
                for client in METADATA_CLIENTS.values()
            ),
        )
        return name.startswith(prefixes)

    def with_dynamic(
        self,
        cluster_wide: Mapping[str, str],
        own: Mapping[str, str] = MappingProxyType({}),
        *,
        strict: bool = False,
    ) -> Self:
        """Apply stored changes to this configuration: first the cluster's, then this node's.

        A stored value that cannot be parsed is ignored, as in Kafka: it was validated when it was
        stored, and a running node does not stop for it. `strict` keeps invalid addresses in the
        result, so that a change can be validated.
        """
        overrides = {**cluster_wide, **own}
        reading = self.definitions.read(overrides)
        values = {name: self.value(name) for name in self.keys}
        values.update(reading.values)
        changed = type(self)(values, self.given, {**self.overrides, **overrides})
        return self if changed.address_problems and not strict else changed

    def _read_addresses(self, problems: list[ConfigProblem]) -> None:
        self.security_protocols, self.endpoints, self.advertised_endpoints = {}, (), ()
        self.voters, self.bootstrap_controllers = (), ()
        name = "listener.security.protocol.map"
        try:
            self.security_protocols = self._effective_protocols()
            name = "listeners"
            self.endpoints = parse_listeners(self.listeners, self.security_protocols)
            name = "advertised.listeners"
            self.advertised_endpoints = self._effective_advertised()
        except AddressError as error:
            problems.append(ConfigProblem(name, self.text(name), str(error)))
        try:
            name = "controller.quorum.voters"
            self.voters = parse_voters(self.controller_quorum_voters)
            name = "controller.quorum.bootstrap.servers"
            entries = self.controller_quorum_bootstrap_servers
            self.bootstrap_controllers = parse_bootstrap_servers(entries, name)
        except AddressError as error:
            problems.append(ConfigProblem(name, self.text(name), str(error)))

    def _effective_protocols(self) -> dict[str, SecurityProtocol]:
        """Read the map; without one, controllers of an unsecured cluster are PLAINTEXT."""
        name = "listener.security.protocol.map"
        protocols = parse_security_map(_split(self.listener_security_protocol_map), name)
        if name in self.given or name in self.overrides:
            return protocols
        controllers = [listener.upper() for listener in self.controller_listener_names or ()]
        listening = [entry.partition("://")[0].upper() for entry in self.listeners]
        secured = {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}
        if secured.isdisjoint(controllers) and secured.isdisjoint(listening):
            for listener in controllers:
                protocols.setdefault(listener, SecurityProtocol.PLAINTEXT)
        return protocols

    def _effective_advertised(self) -> tuple[ListenerEndpoint, ...]:
        if self.advertised_listeners is None:
            return self.broker_endpoints
        advertised = parse_listeners(
            self.advertised_listeners, self.security_protocols, distinct_ports=False
        )
        return tuple(address for address in advertised if not self._controllers_own(address))

    def _read_inter_broker_listener(self, problems: list[ConfigProblem]) -> None:
        name = "inter.broker.listener.name"
        listener = self.inter_broker_listener_name
        self.inter_broker_endpoint_name = (listener or self.security_inter_broker_protocol).upper()
        if listener is None:
            try:
                parse_protocol(
                    self.security_inter_broker_protocol, "security.inter.broker.protocol"
                )
            except AddressError as error:
                problems.append(ConfigProblem("security.inter.broker.protocol", None, str(error)))
            return
        if "security.inter.broker.protocol" in self.given:
            message = f"Only one of {name} and security.inter.broker.protocol should be set."
            problems.append(ConfigProblem(name, listener, message))
        elif listener.upper() not in self.security_protocols:
            message = (
                f"Listener with name {listener.upper()} defined in {name} not found in "
                "listener.security.protocol.map."
            )
            problems.append(ConfigProblem(name, listener, message))


def _split(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _first(*numbers: int | None) -> int:
    return next(number for number in numbers if number is not None)
