"""Addresses in settings: listeners, the security map, and the addresses of controllers.

Kafka: AbstractKafkaConfig.listenerListToEndPoints, org.apache.kafka.raft.QuorumConfig.
"""

from __future__ import annotations

import re
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.checks import MAX_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LISTENER = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)", re.DOTALL)
_HOST_PORT = re.compile(r"(?:.*?://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)", re.DOTALL)


class SecurityProtocol(IntEnum):
    """The security of a listener; broker registrations contain the numbers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class ListenerEndpoint(NamedTuple):
    """One listener: its name in capitals, host ("" is every interface), port, security."""

    listener: str
    host: str
    port: int
    security_protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class StaticVoter(NamedTuple):
    """A controller of a static quorum."""

    node_id: int
    host: str
    port: int


class HostAndPort(NamedTuple):
    """A host and port."""

    host: str
    port: int


class AddressError(ValueError):
    """An invalid address; the text is the complete message."""


def parse_security_map(entries: Iterable[str], name: str) -> dict[str, SecurityProtocol]:
    """Read NAME:PROTOCOL pairs; AddressError at the first wrong one."""
    protocols: dict[str, SecurityProtocol] = {}
    for entry in entries:
        listener, separator, protocol = entry.partition(":")
        if not separator:
            raise AddressError(f"Error parsing configuration property '{name}': {entry}")
        protocols[listener.strip().upper()] = parse_protocol(protocol.strip(), name)
    return protocols


def parse_protocol(protocol: str, name: str) -> SecurityProtocol:
    """Find the security protocol by its name in any case."""
    try:
        return SecurityProtocol[protocol.upper()]
    except KeyError:
        raise AddressError(f"Invalid security protocol `{protocol}` defined in {name}") from None


def parse_listeners(
    entries: Sequence[str],
    protocols: Mapping[str, SecurityProtocol],
    *,
    distinct_ports: bool = True,
) -> tuple[ListenerEndpoint, ...]:
    """Read name://host:port entries; AddressError when one is wrong or two collide."""
    text = f"[{', '.join(entries)}]"
    try:
        endpoints = [_parse_listener(entry, protocols) for entry in entries]
        _check_distinct(endpoints, text, distinct_ports=distinct_ports)
    except AddressError as error:
        message = f"Error creating broker listeners from '{text}': {error}"
        raise AddressError(message) from None
    return tuple(endpoints)


def _parse_listener(entry: str, protocols: Mapping[str, SecurityProtocol]) -> ListenerEndpoint:
    match = _LISTENER.fullmatch(entry)
    if match is None or int(match[3]) > MAX_PORT:
        raise AddressError(f"Unable to parse {entry} to a broker endpoint")
    listener = match[1].upper()
    protocol = protocols.get(listener)
    if protocol is None:
        raise AddressError(f"No security protocol defined for listener {listener}")
    return ListenerEndpoint(listener, match[2], int(match[3]), protocol)


def _check_distinct(
    endpoints: Sequence[ListenerEndpoint], text: str, *, distinct_ports: bool
) -> None:
    if len({endpoint.listener for endpoint in endpoints}) != len(endpoints):
        raise AddressError(f"Each listener must have a different name, listeners: {text}")
    if not distinct_ports:
        return
    by_port: dict[int, list[ListenerEndpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port != 0:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, same in by_port.items():
        if len(same) > 1:
            _check_shared_port(port, same, text)


def _check_shared_port(port: int, endpoints: Sequence[ListenerEndpoint], text: str) -> None:
    numeric = [address for address in map(_address, endpoints) if address is not None]
    if len(endpoints) != len(numeric) or len(endpoints) > 2:
        if len(numeric) == 2:
            raise AddressError(
                "Each listener must have a different port unless exactly one listener has an "
                f"IPv4 address and the other IPv6 address, listeners: {text}, port: {port}"
            )
        raise AddressError(f"Each listener must have a different port, listeners: {text}")
    if {type(address) for address in numeric} != {IPv4Address, IPv6Address}:
        raise AddressError(
            "If you have two listeners on the same port then one needs to be IPv4 and the other "
            f"IPv6, listeners: {text}, port: {port}"
        )


def _address(endpoint: ListenerEndpoint) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(endpoint.host)
    except ValueError:
        return None


def parse_voters(entries: Iterable[str]) -> tuple[StaticVoter, ...]:
    """Read id@host:port entries of controller.quorum.voters; AddressError at a wrong one."""
    return tuple(_parse_voter(entry) for entry in entries)


def _parse_voter(entry: str) -> StaticVoter:
    name = "controller.quorum.voters"
    form = "Each entry should be in the form `{id}@{host}:{port}`."
    node_id, separator, address = entry.partition("@")
    if not separator:
        raise AddressError(f"Invalid configuration value for {name}. {form}")
    if not re.fullmatch(r"-?\d{1,9}", node_id):
        raise AddressError(f"Failed to parse voter ID as an integer from {node_id}")
    match = _HOST_PORT.fullmatch(address)
    if match is None or not match[1]:
        raise AddressError(
            f"Failed to parse host name from entry {entry} for the configuration {name}. {form}"
        )
    return StaticVoter(int(node_id), match[1], _port(match[2]))


def parse_bootstrap_servers(entries: Iterable[str], name: str) -> tuple[HostAndPort, ...]:
    """Read host:port entries; AddressError at a wrong one."""
    servers = []
    for entry in entries:
        match = _HOST_PORT.fullmatch(entry)
        if match is None or not match[1]:
            raise AddressError(
                f"Failed to parse host name from {entry} for the configuration {name}. "
                'Each entry should be in the form "{host}:{port}"'
            )
        servers.append(HostAndPort(match[1], _port(match[2])))
    return tuple(servers)


def _port(digits: str) -> int:
    port = int(digits[:9])
    if port > MAX_PORT:
        raise AddressError(f"port out of range:{port}")
    return port
