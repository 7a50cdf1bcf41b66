"""`ottla connect-mirror-maker`: mirror clusters to each other.

Kafka: bin/connect-mirror-maker.sh, org.apache.kafka.connect.mirror.MirrorMaker.
"""

from __future__ import annotations

import signal
import threading

import click

from ottla.cli.options.connection import read_file
from ottla.cli.output.failures import failure_text
from ottla.config.problems import ConfigErrors

EXAMPLES = """
\b
Examples:
  ottla connect-mirror-maker mm2.properties
  ottla connect-mirror-maker mm2.properties --clusters backup
"""


@click.command("connect-mirror-maker", epilog=EXAMPLES)
@click.argument("config", metavar="MM2.PROPERTIES", type=click.Path(exists=True, dir_okay=False))
@click.option("--clusters", is_flag=True, help="Target cluster to use for this node, after it.")
@click.argument("aliases", metavar="[CLUSTER ...]", nargs=-1)
def connect_mirror_maker(config: str, aliases: tuple[str, ...], *, clusters: bool) -> None:
    """MirrorMaker 2: copy topics, group offsets and access control between clusters.

    The file names `clusters`, their `A.bootstrap.servers`, and the flows `A->B.enabled=true`
    (docs/mirroring.md). Run it near the target. Ctrl-C commits and stops.
    """
    if clusters != bool(aliases):
        text = "--clusters needs aliases" if clusters else f"unexpected argument {aliases[0]}"
        raise click.UsageError(text)
    from ottla.connect.errors import ConnectException
    from ottla.connect.mirror.flows import MirrorMaker, MirrorMakerConfig
    from ottla.connect.runtime.log_context import log_with_context
    from ottla.errors import KafkaError

    log_with_context()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        mirror = MirrorMaker(MirrorMakerConfig(read_file(config)), aliases)
        try:
            mirror.start()
            click.echo("Kafka MirrorMaker started: " + ", ".join(map(str, mirror.flows)))
            stopped.wait()
        finally:
            mirror.stop()
    except (ConnectException, ConfigErrors) as error:
        raise click.ClickException(f"{config}: {error}") from error
    except (KafkaError, TimeoutError) as error:
        raise click.ClickException(failure_text(error)) from error
