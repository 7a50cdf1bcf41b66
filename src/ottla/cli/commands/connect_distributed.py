"""`ottla connect-distributed`: run a worker of a group.

Kafka: bin/connect-distributed.sh, org.apache.kafka.connect.cli.ConnectDistributed.
"""

from __future__ import annotations

import click

from ottla.cli.commands.connect_standalone import bind_rest, find_cluster_id, serve
from ottla.cli.output.failures import failure_text

EXAMPLES = """
\b
Examples:
  ottla connect-distributed connect-distributed.properties
  curl -X PUT -H "Content-Type: application/json" localhost:8083/connectors/lines/config \\
    -d '{"connector.class": "FileStreamSource", "file": "in.txt", "topic": "lines"}'
"""


@click.command("connect-distributed", epilog=EXAMPLES)
@click.argument("worker", type=click.Path(exists=True, dir_okay=False))
def connect_distributed(worker: str) -> None:
    """Run a worker of a group: WORKER is its properties, `group.id` names the group.

    Workers of a group share connectors and tasks, and keep settings, offsets and states in the
    topics of `config.storage.topic`, `offset.storage.topic` and `status.storage.topic`, which are
    created when missing. Connectors come by the REST API at `listeners`, by default
    http://localhost:8083. Ctrl-C commits, leaves the group and stops.
    """
    from ottla.connect.distributed.forwarding import DistributedApi
    from ottla.connect.distributed.settings import DISTRIBUTED
    from ottla.connect.distributed.worker import Distributed
    from ottla.connect.errors import ConnectException
    from ottla.connect.runtime.log_context import log_with_context
    from ottla.errors import KafkaError

    log_with_context()
    settings, server = bind_rest(worker, DISTRIBUTED)
    cluster_id = find_cluster_id(settings)
    try:
        running = Distributed(settings, server.address, server.url)
    except ConnectException as error:
        raise click.ClickException(f"{worker}: {error}") from error
    except (KafkaError, TimeoutError) as error:
        raise click.ClickException(failure_text(error)) from error
    serve(server, DistributedApi(running, cluster_id), running)
