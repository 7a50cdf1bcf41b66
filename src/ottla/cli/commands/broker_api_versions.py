"""`ottla broker-api-versions`: list the API versions that each broker supports.

Kafka: bin/kafka-broker-api-versions.sh, org.apache.kafka.tools.BrokerApiVersionsCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import json_option, print_json, require, server_options, wants_json
from ottla.cli.options.joptsimple import ToolCommand
from ottla.cli.output.failures import failures_reported, java_text
from ottla.errors import KafkaError
from ottla.protocol.api_keys import ApiKey, request_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.types import Node

EXAMPLES = """
\b
Examples:
  ottla broker-api-versions --bootstrap-server localhost:9092
"""


@click.command("broker-api-versions", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@json_option
def broker_api_versions(**options: Any) -> None:
    """Print the versions of each API that a broker supports and the version that is used."""
    require(options["bootstrap_server"], "bootstrap-server")
    with (
        failures_reported(),
        open_admin(options["bootstrap_server"], options["command_config"]) as admin,
    ):
        nodes = admin.describe_cluster().brokers
        if wants_json():
            print_json([_document(node, _versions(admin, node)) for node in nodes])
            return
        for node in nodes:
            click.echo(broker_text(node, _versions(admin, node)))


def _versions(admin: Any, node: Node) -> Mapping[int, tuple[int, int]] | KafkaError:
    try:
        versions: Mapping[int, tuple[int, int]] = admin.api_versions(node.node_id)
    except KafkaError as error:
        return error
    return versions


def _document(
    node: Node, versions: Mapping[int, tuple[int, int]] | KafkaError
) -> dict[str, object]:
    place = {"id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
    if isinstance(versions, KafkaError):
        return {**place, "error": java_text(versions)}
    known = {int(key): request_class(key) for key in ApiKey}
    apis = [
        {
            "key": key,
            "api": known[key].__name__.removesuffix("Request") if key in known else None,
            "lowest": lowest,
            "highest": highest,
        }
        for key, (lowest, highest) in sorted(versions.items())
    ]
    return {**place, "apis": apis}


def broker_text(node: Node, versions: Mapping[int, tuple[int, int]] | KafkaError) -> str:
    """Return the paragraph of one broker."""
    rack = "null" if node.rack is None else node.rack
    head = f"{node.host}:{node.port} (id: {node.node_id} rack: {rack} isFenced: false) -> "
    if isinstance(versions, KafkaError):
        return f"{head}ERROR: {java_text(versions)}"
    ours = {
        int(key): request_class(key).__name__.removesuffix("Request")
        for key in ApiKey
        if "broker" in request_class(key).api_listeners
    }
    lines = [_line(key, ours[key], versions.get(key)) for key in sorted(ours)]
    lines += [
        f"UNKNOWN({key}): {_range(*versions[key])}" for key in sorted(versions) if key not in ours
    ]
    return head + "(\n\t" + ",\n\t".join(lines) + "\n)"


def _line(key: int, name: str, served: tuple[int, int] | None) -> str:
    if served is None:
        return f"{name}({key}): UNSUPPORTED"
    known = request_class(ApiKey(key)).versions
    highest = min(served[1], known.highest)
    usable = str(highest) if highest >= max(served[0], known.lowest) else "none"
    return f"{name}({key}): {_range(*served)} [usable: {usable}]"


def _range(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"
