"""`ottla dev`: a node for development, with TLS and logins on request.

Kafka: none; `server-start` is the tool that Kafka has.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.cli.dev import DevFiles
    from ottla.config.broker import BrokerConfig
    from ottla.server.node.startup import Banner

EXAMPLES = """
\b
Examples:
  ottla dev
  ottla dev --tls
  ottla dev --tls --port 19092 --data-dir ./secured
"""


@click.command("dev", epilog=EXAMPLES)
@click.option("--tls", is_flag=True, help="Use TLS, SCRAM and an authorizer.")
@click.option("--port", type=int, default=9092, help="Port of the node; 0 chooses a free one.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of data and settings; by default ./ottla-data, with --tls ./ottla-secured.",
)
@click.option(
    "--ready-file", type=click.Path(dir_okay=False), help="Write the node's address to this file."
)
def dev(tls: bool, port: int, data_dir: Path | None, ready_file: str | None) -> None:
    """Run a node on this machine and print how Python, Java and kcat clients reach it.

    With --tls it has its own authority, a certificate, and a user whose password is generated at
    the first start; all of it stays in the directory. For development, not production.
    """
    from ottla.cli.commands.server_start import run_node
    from ottla.cli.dev import DevFiles
    from ottla.cli.options.node_config import load_settings

    if not tls:
        overrides = () if data_dir is None else (f"log.dirs={data_dir}",)
        run_node(load_settings(None, overrides, port=port), ready_file, plain_lines)
        return
    files = DevFiles((data_dir or Path("ottla-secured")).absolute())
    try:
        users = files.prepare(port)
        settings = load_settings(str(files.settings))
        if users:
            _format(settings.config, users)
    except OSError as error:
        raise click.ClickException(f"cannot use {files.root}: {error.strerror}") from error
    run_node(settings, ready_file, lambda banner: _secured_lines(files, banner))


def _format(config: BrokerConfig, users: Sequence[str]) -> None:
    """Format the directory with the first users."""
    from ottla.cli.commands.storage import real_environment
    from ottla.metadata.scram_credential import parse_scram_argument
    from ottla.server.node.format import FormatError, FormatRequest, format_directories

    target = real_environment(config, quiet=True)
    request = FormatRequest(
        cluster_id=str(target.new_uuid()),
        standalone=True,
        scram_credentials=tuple(parse_scram_argument(user, os.urandom) for user in users),
    )
    try:
        format_directories(config, request, target)
    except FormatError as error:
        raise click.ClickException(str(error)) from error


def _secured_lines(files: DevFiles, banner: Banner) -> Iterator[str]:
    """Yield the lines for a node with TLS and SCRAM."""
    from ottla.cli.dev import ADMIN

    bootstrap = banner.bootstrap
    *lines, _ = banner.lines()  # the last line is a command without credentials
    yield from lines
    yield f"user      {ADMIN}, a super user; its password is in {files.client}"
    yield f"authority {files.authority}"
    yield ""
    yield "Python"
    for line in _python_lines(files, bootstrap):
        yield f"  {line}"
    yield "Java"
    yield f"  producer.properties: bootstrap.servers={bootstrap}, and {files.client}"
    tools = f"--bootstrap-server {bootstrap} --command-config {files.client}"
    yield f"  kafka-topics.sh {tools} --list"
    yield "kcat"
    yield f"  kcat -F {files.kcat} -b {bootstrap} -L"
    yield "Tools"
    yield f"  ottla topics {tools} --list"


def _python_lines(files: DevFiles, bootstrap: str) -> Iterator[str]:
    """Yield an expression for each Python client that connects as the admin."""
    from ottla.cli.dev import ADMIN, MECHANISM

    own = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": ADMIN,
        "sasl.password": files.password,
    }
    authority = str(files.authority)
    yield _call(
        "ottla.Producer",
        bootstrap_servers=bootstrap,
        config={**own, "ssl.truststore.location": authority},
    )
    librdkafka = {"bootstrap.servers": bootstrap, **own, "ssl.ca.location": authority}
    yield f"confluent_kafka.Producer({librdkafka!r})"
    yield _call(
        "kafka.KafkaProducer",
        bootstrap_servers=bootstrap,
        security_protocol="SASL_SSL",
        sasl_mechanism=MECHANISM,
        sasl_plain_username=ADMIN,
        sasl_plain_password=files.password,
        ssl_cafile=authority,
    )


def plain_lines(banner: Banner) -> Iterator[str]:
    """Yield the lines for a node without security."""
    bootstrap = banner.bootstrap
    yield from banner.lines()
    yield ""
    yield f"Python  ottla.Producer(bootstrap_servers={bootstrap!r})"
    yield f"Java    bootstrap.servers={bootstrap}"
    yield f"kcat    kcat -b {bootstrap} -L"


def _call(name: str, **arguments: object) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
