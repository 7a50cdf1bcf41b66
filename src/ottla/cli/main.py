"""The `ottla` command: one subcommand per kafka-*.sh tool, imported when it is called.

Kafka: bin/*.sh. `ottla --help` must be quick, so this module lists the commands with their short
descriptions, and command modules are imported on demand.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla._version import __version__
from ottla.cli.options.profiles import chosen_profile, defaults, take_profile
from ottla.cli.options.proposals import did_you_mean, near_names

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION_TEXT = (
    f"Ottla {__version__}, Apache Kafka protocol 4.3 (metadata.version 4.3-IV0)\n"
    "No telemetry is collected or sent."
)

EXAMPLES = """
\b
Examples:
  ottla server-start
  ottla topics --bootstrap-server localhost:9092 --create --topic orders --partitions 3
  ottla console-producer --bootstrap-server localhost:9092 --topic orders
  ottla console-consumer --bootstrap-server localhost:9092 --topic orders --from-beginning
  ottla consumer-groups --bootstrap-server localhost:9092 --describe --all-groups
\b
The commands have the flags and the output of Kafka's bin/kafka-<command>.sh; --json prints JSON.
--profile or OTTLA_BOOTSTRAP_SERVERS replaces --bootstrap-server: docs/tools.md.
"""


SERVER_HINT = (
    "To leave it out, set OTTLA_BOOTSTRAP_SERVERS or write a profile (docs/tools.md, Profiles)."
)
_MISSING = (
    "Missing required",
    "--bootstrap-server must",
    "argument --bootstrap-server is required",
    "one of the arguments",
    "One of --bootstrap-server",
    "Please specify either",
)


class Command(NamedTuple):
    """The module and function of a subcommand, and its description in the list of commands."""

    module: str
    attribute: str
    help: str


COMMANDS: dict[str, Command] = {
    "acls": Command(
        "ottla.cli.commands.acls", "acls", "List, add and remove access control entries."
    ),
    "backup": Command(
        "ottla.cli.commands.backup", "backup", "Back up a node's directory, also a running one's."
    ),
    "branch": Command(
        "ottla.cli.commands.branch", "branch", "Fork a stopped node's directory by hard links."
    ),
    "broker-api-versions": Command(
        "ottla.cli.commands.broker_api_versions",
        "broker_api_versions",
        "Show the API versions of each broker.",
    ),
    "client-metrics": Command(
        "ottla.cli.commands.client_metrics",
        "client_metrics",
        "Manage client metrics subscriptions.",
    ),
    "cluster": Command(
        "ottla.cli.commands.cluster", "cluster", "Show the cluster; unregister brokers."
    ),
    "configs": Command(
        "ottla.cli.commands.configs", "configs", "Describe and change settings and quotas."
    ),
    "config": Command(
        "ottla.cli.commands.config_show",
        "config",
        "Show a node's settings and their origins.",
    ),
    "connect": Command("ottla.cli.commands.connect", "connect", "Write connectors of your own."),
    "connect-distributed": Command(
        "ottla.cli.commands.connect_distributed",
        "connect_distributed",
        "Run a worker of a group that divides connectors and tasks.",
    ),
    "connect-mirror-maker": Command(
        "ottla.cli.commands.connect_mirror_maker",
        "connect_mirror_maker",
        "Mirror topics and group offsets between clusters.",
    ),
    "connect-standalone": Command(
        "ottla.cli.commands.connect_standalone",
        "connect_standalone",
        "Run connectors: data into topics and out of them.",
    ),
    "console-consumer": Command(
        "ottla.cli.commands.console_consumer", "console_consumer", "Print the records of a topic."
    ),
    "console-producer": Command(
        "ottla.cli.commands.console_producer", "console_producer", "Send lines as records."
    ),
    "console-share-consumer": Command(
        "ottla.cli.share.console_share_consumer",
        "console_share_consumer",
        "Print the records that a share group's member gets.",
    ),
    "consumer-groups": Command(
        "ottla.cli.commands.consumer_groups",
        "consumer_groups",
        "List, describe, reset, delete groups.",
    ),
    "consumer-perf-test": Command(
        "ottla.cli.perf.consumer_perf_test",
        "consumer_perf_test",
        "Measure consumer throughput.",
    ),
    "delegation-tokens": Command(
        "ottla.cli.commands.delegation_tokens",
        "delegation_tokens",
        "Create, renew, expire and describe delegation tokens.",
    ),
    "delete-records": Command(
        "ottla.cli.commands.delete_records", "delete_records", "Delete records below an offset."
    ),
    "demo": Command(
        "ottla.cli.commands.quickstart",
        "demo",
        "Send and read a thousand events on a temporary node.",
    ),
    "dev": Command(
        "ottla.cli.commands.dev", "dev", "Run a node for development, with TLS and logins."
    ),
    "dev-cluster": Command(
        "ottla.cli.commands.dev_cluster", "dev_cluster", "Run several nodes on this machine."
    ),
    "dump-log": Command(
        "ottla.cli.commands.dump_log",
        "dump_log_command",
        "Print segments, indexes and snapshots.",
    ),
    "end-to-end-latency": Command(
        "ottla.cli.perf.end_to_end_latency", "end_to_end_latency", "Measure end-to-end latency."
    ),
    "features": Command(
        "ottla.cli.commands.features", "features", "Describe and change feature levels."
    ),
    "get-offsets": Command(
        "ottla.cli.commands.get_offsets", "get_offsets", "Print partition offsets by time."
    ),
    "groups": Command("ottla.cli.commands.groups", "groups", "List the groups of all types."),
    "leader-election": Command(
        "ottla.cli.commands.leader_election",
        "leader_election",
        "Elect preferred or unclean leaders.",
    ),
    "log-dirs": Command(
        "ottla.cli.commands.log_dirs", "log_dirs", "Show replicas and sizes on disk."
    ),
    "log-repair": Command(
        "ottla.cli.commands.log_repair", "log_repair", "Check and truncate damaged logs."
    ),
    "metadata-quorum": Command(
        "ottla.cli.commands.metadata_quorum",
        "metadata_quorum",
        "Describe and change the quorum.",
    ),
    "metadata-shell": Command(
        "ottla.cli.shell.metadata_shell",
        "metadata_shell",
        "Browse the metadata in a snapshot.",
    ),
    "migrate": Command(
        "ottla.cli.commands.migrate", "migrate", "Plan the migration of a Kafka cluster, and back."
    ),
    "producer-perf-test": Command(
        "ottla.cli.perf.producer_perf_test",
        "producer_perf_test",
        "Measure producer throughput.",
    ),
    "quickstart": Command(
        "ottla.cli.commands.quickstart", "quickstart", "Run a node, a topic and a Spark job."
    ),
    "reassign-partitions": Command(
        "ottla.cli.reassign.reassign_partitions",
        "reassign_partitions",
        "Move replicas to other brokers.",
    ),
    "replica-verification": Command(
        "ottla.cli.verify.replica_verification",
        "replica_verification",
        "Compare replicas' batches.",
    ),
    "restore": Command(
        "ottla.cli.commands.backup", "restore_command", "Make a directory from a backup."
    ),
    "server-start": Command(
        "ottla.cli.commands.server_start", "server_start", "Run a node: broker and controller."
    ),
    "server-stop": Command(
        "ottla.cli.commands.server_stop", "server_stop", "Stop the nodes of this machine."
    ),
    "share-consumer-perf-test": Command(
        "ottla.cli.share.share_consumer_perf_test",
        "share_consumer_perf_test",
        "Measure the throughput of a share group.",
    ),
    "share-groups": Command(
        "ottla.cli.commands.share_groups",
        "share_groups",
        "List, describe, reset, delete share groups.",
    ),
    "sql": Command("ottla.cli.commands.sql", "sql", "Query topics with SQL."),
    "storage": Command(
        "ottla.cli.commands.storage", "storage", "Format and inspect log directories."
    ),
    "streams": Command(
        "ottla.cli.commands.streams", "streams", "Run and describe a streams application."
    ),
    "streams-application-reset": Command(
        "ottla.cli.commands.streams_application_reset",
        "streams_application_reset",
        "Reset a Kafka Streams application.",
    ),
    "streams-groups": Command(
        "ottla.cli.commands.streams_groups",
        "streams_groups",
        "List, describe, reset, delete streams groups.",
    ),
    "tables": Command("ottla.cli.commands.tables", "tables", "Keep Iceberg tables of topics."),
    "topics": Command(
        "ottla.cli.commands.topics", "topics", "Create, list, describe, change topics."
    ),
    "transactions": Command(
        "ottla.cli.commands.transactions",
        "transactions",
        "Show, find and abort transactions.",
    ),
    "transactional-message-copier": Command(
        "ottla.cli.verify.transactional_message_copier",
        "transactional_message_copier",
        "Copy a partition in transactions, for system tests.",
    ),
    "verifiable-consumer": Command(
        "ottla.cli.verify.verifiable_consumer",
        "verifiable_consumer",
        "Consume; print events as JSON.",
    ),
    "verifiable-producer": Command(
        "ottla.cli.verify.verifiable_producer",
        "verifiable_producer",
        "Produce; print events as JSON.",
    ),
    "verify": Command("ottla.cli.commands.verify", "verify", "Check all files of a stopped node."),
    "verifiable-share-consumer": Command(
        "ottla.cli.share.verifiable_share_consumer",
        "verifiable_share_consumer",
        "Read in a share group and report events as JSON.",
    ),
}


# Kafka's scripts whose names are not those of their tools.
_SCRIPTS = {"e2e-latency": "end-to-end-latency"}
_COMPLETE = "_OTTLA_COMPLETE"
"""Set by the shell while it completes a line."""


class LateGroup(click.Group):
    """A group that imports commands when they are called, not when they are listed."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Accept --profile anywhere; it or the environment determines where to connect."""
        flag, left = take_profile(args)
        profile = chosen_profile(flag, os.environ)
        if profile is not None:
            extra["default_map"] = defaults(profile, left, [*COMMANDS, *_SCRIPTS.values()])
        return super().make_context(info_name, left, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Handle `--version --verbose` here, in either order."""
        if set(args) == {"--version", "--verbose"}:
            from ottla.cli.output.versions import version_lines

            click.echo("\n".join((VERSION_TEXT, *version_lines())))
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """List the commands whose modules are installed."""
        return sorted(name for name, one in COMMANDS.items() if find_spec(one.module))

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; Kafka's script names are accepted too."""
        name = cmd_name.removeprefix("kafka-").removesuffix(".sh")
        found = COMMANDS.get(_SCRIPTS.get(name, name))
        if found is None or find_spec(found.module) is None:
            return None
        command = getattr(import_module(found.module), found.attribute)
        assert isinstance(command, click.Command)
        if _COMPLETE in os.environ:
            from ottla.cli.options.completion import complete_names

            complete_names(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; propose the nearest one for an unknown name."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            proposal = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"No such command '{name}'.{proposal}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        rows = [(name, COMMANDS[name].help) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    cls=LateGroup, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, "--version", message=VERSION_TEXT.partition("\n")[0])
@click.option(
    "--verbose", is_flag=True, help="With --version: compiled modules, Python and libraries."
)
@click.option("--profile", metavar="NAME", help="Connect with this profile: docs/tools.md.")
def ottla(verbose: bool, profile: str | None) -> None:
    """Apache Kafka in Python: nodes, tools and clients."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 on success, 1 on any failure, as in Kafka."""
    _open_standard_streams()
    try:
        ottla.main(arguments, prog_name="ottla", standalone_mode=False)
    except click.Abort:
        sys.exit(130)
    except click.NoSuchOption as error:
        # Return only the nearest flag, since click would propose several.
        known = [] if error.ctx is None else error.ctx.command.get_params(error.ctx)
        flags = [flag for option in known for flag in option.opts if flag.startswith("--")]
        near = near_names(error.option_name, flags)
        click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx).show()
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        if _lacks_server(error.format_message()):
            click.echo(SERVER_HINT, err=True)
        # click's 2 for errors of usage is 1 in Kafka; other codes are those of a command
        sys.exit(1 if isinstance(error, click.UsageError) else error.exit_code)


def _lacks_server(message: str) -> bool:
    """Whether the error is that nothing says where to connect, in the words of Kafka's tools."""
    return "bootstrap-server" in message and message.startswith(_MISSING)


def _open_standard_streams() -> None:
    """Open /dev/null for standard streams that are closed (`>&-`).

    Otherwise the first socket or file would get the stream's descriptor: output would be written
    to it, and uvloop aborts when it closes such a descriptor.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
            if getattr(sys, name) is None:
                mode = "w" if number else "r"
                setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - stays open


if __name__ == "__main__":
    main()
