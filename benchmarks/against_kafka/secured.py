"""TLS and SCRAM of Kafka and of Ottla: CPU for a gigabyte, logins a second.

    python benchmarks/against_kafka/secured.py --libs DIR [--megabytes 300] [--seconds 5] [--runs 2]

Alternating runs. Records of 10 KB go through librdkafka, in this process, over TLS 1.3; logins are
SCRAM-SHA-256 by eight connections at a time with the client's part computed beforehand. CPU is that
of the broker process.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import hmac
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.against_kafka.brokers import Ottla, RealKafka, free_port
from benchmarks.against_kafka.groups import Peer

from ottla import Admin
from ottla.cli.dev import LOOPBACK, issue, new_authority, write_private
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from benchmarks.against_kafka.brokers import Broker

MECHANISM, USER, PASSWORD = "SCRAM-SHA-256", "alice", "alice-secret"
RECORD = os.urandom(10_000)
AT_A_TIME = 8
GIGABYTE = 1e9


class Figures(NamedTuple):
    """What one run measured."""

    produce_cpu_s: float
    consume_cpu_s: float
    logins_a_second: float
    login_cpu_ms: float


def settings(directory: Path, tls: int, login: int, plain: int, controller: int) -> list[str]:
    """Return the node's settings, with certificates of an own authority."""
    directory.mkdir(parents=True)
    authority = new_authority("authority")
    node = issue(authority, "node", LOOPBACK)
    (directory / "ca.pem").write_text(authority.certificate_pem)
    write_private(directory / "node.pem", node.key_pem + node.certificate_pem)
    ports = {"PLAINTEXT": plain, "TLS": tls, "LOGIN": login, "CONTROLLER": controller}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return [
        "listeners=" + ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        (
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT,"
            "CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name=PLAINTEXT",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={directory / 'node.pem'}",
        f"sasl.enabled.mechanisms={MECHANISM}",
        f"listener.name.login.{MECHANISM.lower()}.sasl.jaas.config={module}",
    ]


def client(directory: Path, port: int) -> dict[str, Any]:
    """Return librdkafka's settings."""
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
    }


def produce(given: dict[str, Any], megabytes: int) -> None:
    """Send records."""
    producer = confluent_kafka.Producer({**given, "linger.ms": 20, "batch.size": 500_000})
    for _ in range(megabytes * 100):
        while True:
            try:
                producer.produce("secured", RECORD)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def consume(given: dict[str, Any], megabytes: int) -> None:
    """Read them again."""
    consumer = confluent_kafka.Consumer({**given, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition("secured", 0, 0)])
    left = megabytes * 100
    while left > 0:
        for one in consumer.consume(1000, 10):
            assert one.error() is None, one.error()
            left -= 1
    consumer.close()


class Proofs:
    """The client's part of a login; the salted password is computed once."""

    def __init__(self) -> None:
        self._salted: dict[bytes, bytes] = {}

    async def log_in(self, bootstrap: str) -> None:
        """Log in on a connection of its own."""
        peer = await Peer().open(bootstrap)
        await peer.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        nonce = base64.b64encode(os.urandom(18)).decode()
        first = f"n={USER},r={nonce}"
        answer = await peer.ask(SaslAuthenticateRequest(auth_bytes=b"n,," + first.encode()), 2)
        server = bytes(answer.auth_bytes).decode()
        fields = dict(part.split("=", 1) for part in server.split(","))
        salt = base64.b64decode(fields["s"])
        salted = self._salted.get(salt)
        if salted is None:
            salted = self._salted[salt] = hashlib.pbkdf2_hmac(
                "sha256", PASSWORD.encode(), salt, int(fields["i"])
            )
        final = f"c=biws,r={fields['r']}"
        key = hmac.digest(salted, b"Client Key", "sha256")
        signed = f"{first},{server},{final}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        request = SaslAuthenticateRequest(auth_bytes=f"{final},p={proof}".encode())
        done = await peer.ask(request, 2)
        assert not done.error_code, done
        peer.close()


async def logins(bootstrap: str, seconds: float) -> int:
    """Return how many logins succeed."""
    proofs, count, until_s = Proofs(), 0, time.monotonic() + seconds

    async def repeat() -> None:
        nonlocal count
        while time.monotonic() < until_s:
            await proofs.log_in(bootstrap)
            count += 1

    await asyncio.gather(*(repeat() for _ in range(AT_A_TIME)))
    return count


def run(name: str, directory: Path, options: argparse.Namespace) -> Figures:
    """Measure one broker."""
    tls, login, plain, controller = (free_port() for _ in range(4))
    given = settings(directory / "keys", tls, login, plain, controller)
    broker: Broker = (
        RealKafka(options.libs, directory / "node", *given)
        if name == "kafka"
        else Ottla(directory / "node", *given)
    )
    try:
        bootstrap = f"127.0.0.1:{plain}"
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic("secured", partitions=1)
            admin.alter_user_scram_credentials({USER: PASSWORD})
        over_tls = client(directory / "keys", tls)
        produce(over_tls, options.warm)
        began = broker.cpu_seconds()
        produce(over_tls, options.megabytes)
        produced = broker.cpu_seconds()
        consume(over_tls, options.megabytes)
        consumed = broker.cpu_seconds()
        asyncio.run(logins(f"127.0.0.1:{login}", options.seconds))
        before = broker.cpu_seconds()
        count = asyncio.run(logins(f"127.0.0.1:{login}", options.seconds))
        spent = broker.cpu_seconds() - before
    finally:
        broker.stop()
    scale = GIGABYTE / (options.megabytes * 1e6)
    return Figures(
        (produced - began) * scale,
        (consumed - produced) * scale,
        count / options.seconds,
        spent * 1000 / count,
    )


def main() -> None:
    """Run both in turn and print the figures and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--libs", required=True, help="directory of Kafka's jars")
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--warm", type=int, default=100, help="megabytes before the measurement")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    found: dict[str, list[Figures]] = {"kafka": [], "ottla": []}
    for number in range(options.runs):
        for name, figures in found.items():
            with tempfile.TemporaryDirectory() as directory:
                figures.append(run(name, Path(directory) / str(number), options))
            print(name, figures[-1], flush=True)
    for field in Figures._fields:
        kafka, ottla = (
            sorted(getattr(one, field) for one in found[name])[options.runs // 2]
            for name in ("kafka", "ottla")
        )
        print(f"{field}: kafka {kafka:.3f}, ottla {ottla:.3f}, ratio {ottla / kafka:.2f}")


if __name__ == "__main__":
    main()
