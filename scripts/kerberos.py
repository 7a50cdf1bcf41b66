#!/usr/bin/env python3
"""Log in by GSSAPI with real Kerberos: our nodes, our clients, Kafka's clients and Kafka's broker.

    scripts/kerberos.py [--kafka]

It makes a key distribution centre in a temporary directory and ends it; no file of the system is
read or changed. It needs `ottla[gssapi]` and the programs of MIT Kerberos (Debian: krb5-kdc,
krb5-user), with --kafka also what the conformance tests need. Each line that it prints is a check
that held; the first one that does not ends it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from ottla import Admin, Consumer, Producer
from ottla.errors import ErrorCode, KafkaError
from ottla.testing.cluster import Cluster
from tests.conformance.kafka import RealKafka, find_kafka
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

REALM: Final = "OTTLA.TEST"
SERVICE: Final = "kafka/localhost"
BRIEF_S: Final = 8
"""How long a ticket of "brief" lasts."""
MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
RULES: Final = "RULE:[1:$1@$0](.*@OTTLA.TEST)s/@.*//,DEFAULT"
KAFKAS: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Realm:
    """A key distribution centre with its own files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self.port,) = free_ports(1)
        (directory / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n"
            ' qualify_shortname = ""\n udp_preference_limit = 1\n'
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
            f"[domain_realm]\n localhost = {REALM}\n"
        )
        (directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_ports = {self.port}\n kdc_tcp_ports = {self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n"
            f"  key_stash_file = {directory}/stash\n  acl_file = {directory}/acl\n"
            f"  kdc_listen = 127.0.0.1:{self.port}\n  kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            "  max_life = 10h\n  max_renewable_life = 7d\n }\n"
        )
        os.environ |= {
            "KRB5_CONFIG": str(directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{directory / 'tickets'}",
            "KRB5RCACHENAME": f"dfl:{directory / 'replays'}",
            "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={directory / 'krb5.conf'}",
        }
        run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of the test")
        self.process = subprocess.Popen([program("krb5kdc"), "-n", "-r", REALM])

    def add(self, principal: str, *options: str) -> Path:
        """Add a principal with a random key; return its keytab."""
        path = self.directory / f"{principal.replace('/', '-')}.keytab"
        run("kadmin.local", "-r", REALM, "addprinc", *options, "-randkey", principal)
        run("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), principal)
        return path

    def change_key(self, principal: str) -> None:
        """Give a principal another key, so that its keytab is wrong."""
        run("kadmin.local", "-r", REALM, "cpw", "-randkey", principal)

    def close(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(10)


def program(name: str) -> str:
    """Return the path of a program of Kerberos."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        raise SystemExit(f"{name} is not installed: krb5-kdc and krb5-user have it on Debian")
    return found


def run(name: str, *arguments: str, check: bool = True) -> str:
    """Run a program of Kerberos and return what it prints."""
    done = subprocess.run(
        [program(name), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    if check and done.returncode:
        raise SystemExit(f"{name} failed: {done.stdout}{done.stderr}")
    return done.stdout


def jaas(keytab: Path, principal: str) -> str:
    """Return the text for a key in a keytab."""
    return (
        f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
        f'principal="{principal}@{REALM}";'
    )


def client(bootstrap: str, text: str | None) -> dict[str, Any]:
    """Return the settings of a client, in dotted names; without a text by the ticket cache."""
    settings = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
    }
    return settings if text is None else {**settings, "sasl.jaas.config": text}


def node_settings(text: str) -> dict[str, str]:
    """Return the settings of a node all of whose listeners ask for GSSAPI."""
    listeners = ("LOGIN", "CONTROLLER")
    return {
        "listeners": ",".join(f"{one}://localhost:0" for one in listeners),
        "listener.security.protocol.map": ",".join(f"{one}:SASL_PLAINTEXT" for one in listeners),
        "inter.broker.listener.name": "LOGIN",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.mechanism.controller.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        "authorizer.class.name": KAFKAS,
        "super.users": "User:kafka;User:alice;User:brief",
        **{f"listener.name.{one.lower()}.gssapi.sasl.jaas.config": text for one in listeners},
    }


def held(what: str) -> None:
    """Print a check that held."""
    print(f"held: {what}", flush=True)


def round_trip(settings: dict[str, Any], topic: str) -> None:
    """Produce a record and read it back."""
    with Producer(config=settings) as producer:
        offset = producer.send(topic, topic.encode(), partition=0).result(30).offset
    with Consumer(config={**settings, "group.id": topic, "auto.offset.reset": "earliest"}) as made:
        made.subscribe([topic])
        deadline_s = time.monotonic() + 30
        while time.monotonic() < deadline_s:
            for record in made.poll(1000):
                if record.offset == offset:
                    return
    raise SystemExit(f"{topic}: the record is not read")


def refused(settings: dict[str, Any], *texts: str) -> None:
    """See to it that a login fails, and that the error names the reason."""
    try:
        with Admin(config=settings) as admin:
            admin.list_topics(timeout=10)
    except KafkaError as error:
        if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise SystemExit(f"another error: {error!r}") from error
        if not any(text in str(error) for text in texts):
            raise SystemExit(f"another text: {error}") from error
    else:
        raise SystemExit("the login is not refused")


def check_nodes(realm: Realm, keytab: Path, alice: Path) -> None:
    """Three nodes of ours log in at each other, and our clients at them."""
    with Cluster(nodes=3, config=node_settings(jaas(keytab, SERVICE))) as cluster:
        settings = client(cluster.bootstrap, jaas(alice, "alice"))
        with Admin(config=settings) as admin:
            admin.create_topic("replicated", partitions=3, replication_factor=3)
        with Producer(config={**settings, "acks": "all"}) as producer:
            for number in range(30):
                producer.send("replicated", b"%d" % number, partition=number % 3)
            producer.flush()
        round_trip(settings, "replicated")
        held("three nodes of Ottla replicate over SASL_PLAINTEXT with GSSAPI at all listeners")
        check_clients(realm, cluster.bootstrap, alice)


def check_clients(realm: Realm, bootstrap: str, alice: Path) -> None:
    """Our clients by keytab and ticket cache; what must not be let in."""
    run("kinit", "-k", "-t", str(alice), "alice")
    round_trip(client(bootstrap, None), "cached")
    run("kdestroy", check=False)
    held("a client of Ottla logs in by a ticket cache, one by a keytab")
    refused(client(bootstrap, None), "no ticket")
    held("a client without a ticket is refused")
    lives = "-maxlife", f"{BRIEF_S} seconds", "-maxrenewlife", "0 seconds"
    brief = realm.add("brief", *lives)
    run("kinit", "-k", "-t", str(brief), "brief")
    with Admin(config=client(bootstrap, None)) as admin:
        admin.list_topics()
    time.sleep(BRIEF_S + 3)
    refused(client(bootstrap, None), "expired")
    held("a client with an expired ticket is refused")
    run("kdestroy", check=False)
    renewed = client(bootstrap, jaas(brief, "brief")) | {
        "sasl.kerberos.min.time.before.relogin": 1,
        "connections.max.idle.ms": 1000,
    }
    with Admin(config=renewed) as admin:
        for _ in range(2):
            admin.list_topics()
            time.sleep(BRIEF_S + 3)
        admin.list_topics()
    held("a client with a keytab renews its tickets")
    realm.change_key("brief")
    refused(client(bootstrap, jaas(brief, "brief")), "no ticket")
    held("a client with a wrong keytab is refused")


def check_wrong_key_of_node(realm: Realm, alice: Path) -> None:
    """Let a client log in at a node whose keytab is old: it is refused, and the node goes on."""
    stale = realm.add("stale/localhost")
    realm.change_key("stale/localhost")
    listeners = "LOGIN://localhost:0,INSIDE://localhost:0,CONTROLLER://localhost:0"
    config = {
        "listeners": listeners,
        "listener.security.protocol.map": (
            "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "stale",
        "listener.name.login.gssapi.sasl.jaas.config": jaas(stale, "stale/localhost"),
    }
    with Cluster(config=config) as cluster:
        settings = client(cluster.bootstrap, jaas(alice, "alice"))
        settings["sasl.kerberos.service.name"] = "stale"
        refused(settings, "invalid credentials with SASL mechanism GSSAPI")
    held("a node with a wrong keytab refuses logins with Kafka's text")


def check_java_client(kafka: Kafka, bootstrap: str, directory: Path, text: str, value: str) -> str:
    """Produce by Kafka's console producer; return what it prints of errors."""
    path = directory / "java.properties"
    settings = client(bootstrap, text)
    settings["max.block.ms"] = "15000"
    path.write_text("".join(f"{name}={one}\n" for name, one in settings.items()))
    done = kafka.run(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", bootstrap, "--topic", "java", "--command-config", str(path)),
        stdin=value + "\n",
        check=False,
    )
    return done.stdout + done.stderr


def check_kafka(realm: Realm, keytab: Path, alice: Path) -> None:
    """Kafka's client at our node, our client at Kafka's broker."""
    kafka = find_kafka()
    wrong = realm.add("bob")
    realm.change_key("bob")
    with Cluster(config=node_settings(jaas(keytab, SERVICE))) as cluster:
        settings = client(cluster.bootstrap, jaas(alice, "alice"))
        with Admin(config=settings) as admin:
            admin.create_topic("java", partitions=1)
        parts = kafka, cluster.bootstrap, realm.directory
        said = check_java_client(*parts, jaas(alice, "alice"), "of Java")
        with Consumer(config={**settings, "group.id": "g", "auto.offset.reset": "earliest"}) as one:
            one.subscribe(["java"])
            records = one.poll(10_000)
        if [record.value for record in records] != [b"of Java"]:
            raise SystemExit(f"Java's record is not there: {records} {said}")
        held("Kafka's Java client logs in at a node of Ottla by a keytab")
        said = check_java_client(*parts, jaas(wrong, "bob"), "never")
        if "LoginException" not in said:
            raise SystemExit(f"another error: {said}")
        held("Kafka's Java client with a wrong keytab is refused by the centre")
    (port,) = free_ports(1)
    login = jaas(keytab, SERVICE)
    properties = {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        "listener.name.login.gssapi.sasl.jaas.config": login,
    }
    with kafka_with_login(kafka, realm.directory / "kafka", properties, port):
        round_trip(client(f"localhost:{port}", jaas(alice, "alice")), "ours")
        held("a client of Ottla logs in at a broker of Kafka by a keytab")


@contextmanager
def kafka_with_login(
    kafka: Kafka, directory: Path, properties: dict[str, str], port: int
) -> Iterator[None]:
    """Run Kafka with a listener that asks for GSSAPI."""
    directory.mkdir()
    real = RealKafka(kafka, directory, properties)
    real.properties["listeners"] += f",LOGIN://localhost:{port}"
    try:
        real.format()
        real.start()
        yield
    finally:
        real.kill()


def main() -> None:
    """Run all checks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kafka", action="store_true", help="also with Kafka's client and broker")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-kerberos-") as path:
        realm = Realm(Path(path))
        try:
            keytab, alice = realm.add(SERVICE), realm.add("alice")
            check_nodes(realm, keytab, alice)
            check_wrong_key_of_node(realm, alice)
            if arguments.kafka:
                check_kafka(realm, keytab, alice)
        finally:
            realm.close()


if __name__ == "__main__":
    main()
