"""The voters of `storage format --initial-controllers`: id@host:port:directory-id.

Kafka: org.apache.kafka.raft.{DynamicVoter, DynamicVoters}; texts as there.
"""

from __future__ import annotations

import ipaddress

from ottla.cli.options.java_numbers import java_integer
from ottla.config.checks import MAX_PORT
from ottla.raft.voter_set import Voter, VoterAddress
from ottla.types import Uuid

INT_BITS = 32


def parse_dynamic_voters(text: str, listener: str) -> tuple[Voter, ...]:
    """Parse a list of voters on one listener; ValueError with Kafka's text."""
    voters: dict[int, Voter] = {}
    for part in text.strip().split(","):
        if not part:
            continue
        voter = _parse(part.strip(), listener)
        if voter.voter_id in voters:
            raise ValueError(f"Node id {voter.voter_id} was specified more than once.")
        voters[voter.voter_id] = voter
    if not voters:
        raise ValueError("No voters given.")
    return tuple(voters[node_id] for node_id in sorted(voters))


def _parse(text: str, listener: str) -> Voter:
    node, at, address = text.partition("@")
    if not at:
        raise ValueError("No @ found in dynamic voter string.")
    if not node:
        raise ValueError("Invalid @ at beginning of dynamic voter string.")
    node_id = _integer(node, "node id")
    if node_id < 0:
        raise ValueError(f"Invalid negative node id {node_id} in dynamic voter string.")
    if not address:
        raise ValueError("No hostname found after node id.")
    host, rest = _split_host(address)
    if not rest.startswith(":"):
        raise ValueError("Port section must start with a colon.")
    port_text, colon, directory = rest[1:].partition(":")
    if not colon:
        raise ValueError("No colon following port could be found.")
    port = _integer(port_text, "port")
    if not 0 <= port <= MAX_PORT:
        raise ValueError(f"Invalid port {port} in dynamic voter string.")
    try:
        directory_id = Uuid.parse(directory)
    except ValueError as error:
        raise ValueError("Failed to parse directory ID in dynamic voter string.") from error
    return Voter(node_id, directory_id, (VoterAddress(listener, _java_host(host), port),))


def _split_host(address: str) -> tuple[str, str]:
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket:
            text = "Hostname began with left bracket, but no right bracket was found."
            raise ValueError(text)
        return host, rest
    host, colon, rest = address.partition(":")
    if not colon:
        raise ValueError("No colon following hostname could be found.")
    return host, colon + rest


def _integer(text: str, name: str) -> int:
    try:
        return java_integer(text, INT_BITS)
    except ValueError as error:
        raise ValueError(f"Failed to parse {name} in dynamic voter string.") from error


def _java_host(host: str) -> str:
    """Return a host as Java's InetSocketAddress names it."""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host or "localhost"
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))
