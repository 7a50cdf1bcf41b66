"""What `ottla dev` prints: how the clients of each language reach the node.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.dev.files import ADMIN, MECHANISM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.cli.dev.files import DevFiles
    from ottla.server.node.startup import Banner


def secured_lines(files: DevFiles, banner: Banner) -> Iterator[str]:
    """Yield the lines for a node with TLS and SCRAM."""
    bootstrap = banner.bootstrap
    *lines, _ = banner.lines()  # the last line is a command without credentials
    yield from lines
    yield f"user      {ADMIN}, a super user; its password is in {files.client}"
    yield f"authority {files.authority}"
    yield ""
    yield "Python"
    for line in python_lines(files, bootstrap):
        yield f"  {line}"
    yield "Java"
    yield f"  producer.properties: bootstrap.servers={bootstrap}, and {files.client}"
    tools = f"--bootstrap-server {bootstrap} --command-config {files.client}"
    yield f"  kafka-topics.sh {tools} --list"
    yield "kcat"
    yield f"  kcat -F {files.kcat} -b {bootstrap} -L"
    yield "Tools"
    yield f"  ottla topics {tools} --list"


def python_lines(files: DevFiles, bootstrap: str) -> Iterator[str]:
    """Yield an expression for each Python client that connects as the admin."""
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
