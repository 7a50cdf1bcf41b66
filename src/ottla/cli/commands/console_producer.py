"""`ottla console-producer`: send lines of standard input as records.

Kafka: bin/kafka-console-producer.sh, org.apache.kafka.tools.{ConsoleProducer,
LineMessageReader}.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.options.connection import key_values, key_values_raw, producer_settings, read_file
from ottla.cli.options.flags import bootstrap_option, require, require_host_and_port, version_option
from ottla.cli.options.joptsimple import INTEGER, ToolCommand
from ottla.cli.output.failures import failure_text, java_text
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ottla.clients.blocking import Producer
    from ottla.clients.producer.batches import Delivery

EXAMPLES = """
\b
Examples:
  ottla console-producer --bootstrap-server localhost:9092 --topic orders
  seq 1000 | ottla console-producer --bootstrap-server localhost:9092 --topic numbers
  ottla console-producer --bootstrap-server localhost:9092 --topic orders \\
      --reader-property parse.key=true --reader-property key.separator=:
"""
DEFAULTS = {
    "parse.key": "false",
    "key.separator": "\t",
    "parse.headers": "false",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "ignore.error": "false",
    "null.marker": "",
}


@click.command("console-producer", cls=ToolCommand, epilog=EXAMPLES)
@bootstrap_option
@version_option
@click.option("--topic", help="REQUIRED. The topic to send to.")
@click.option("--sync", is_flag=True, help="Wait for each record before the next.")
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    metavar="[CODEC]",
    help="none, gzip, snappy, lz4 or zstd; gzip if no codec is given.",
)
@click.option("--batch-size", type=INTEGER, default=16_384, help="Maximum bytes of a batch.")
@click.option(
    "--message-send-max-retries", type=INTEGER, default=3, help="Maximum retries of a batch."
)
@click.option("--retry-backoff-ms", type=INTEGER, default=100, help="Pause between retries.")
@click.option("--timeout", type=INTEGER, default=1000, help="Linger time of a batch, in ms.")
@click.option(
    "--request-required-acks", default="-1", help="Required acknowledgements: 0, 1, -1 or all."
)
@click.option("--request-timeout-ms", type=INTEGER, default=1500, help="Time limit of a request.")
@click.option(
    "--metadata-expiry-ms", type=INTEGER, default=300_000, help="Maximum age of metadata."
)
@click.option(
    "--max-block-ms", type=INTEGER, default=60_000, help="Maximum time that a send blocks."
)
@click.option(
    "--max-memory-bytes", type=INTEGER, default=33_554_432, help="Memory for waiting records."
)
@click.option("--max-partition-memory-bytes", type=INTEGER, help="Deprecated: see --batch-size.")
@click.option("--socket-buffer-size", type=INTEGER, default=102_400, help="Send buffer of sockets.")
@click.option("--line-reader", default="org.apache.kafka.tools.LineMessageReader", hidden=True)
@click.option(
    "--reader-property", multiple=True, metavar="NAME=VALUE", help="A property of the line reader."
)
@click.option("--reader-config", metavar="FILE", help="The same from a file.")
@click.option("--property", "old_reader_property", multiple=True, hidden=True)
@click.option(
    "--command-property", multiple=True, metavar="NAME=VALUE", help="A producer's setting."
)
@click.option("--command-config", metavar="FILE", help="A producer's settings.")
@click.option("--producer-property", multiple=True, hidden=True)
@click.option("--producer.config", "producer_config", hidden=True)
def console_producer(**options: Any) -> None:
    """Send lines of standard input as records."""
    require(options["bootstrap_server"], "bootstrap-server")
    require(options["topic"], "topic")
    require_host_and_port(options["bootstrap_server"])
    for new, old, flag in (
        ("reader_property", "old_reader_property", "--property"),
        ("command_property", "producer_property", "--producer-property"),
        ("command_config", "producer_config", "--producer.config"),
    ):
        now = f"--{new.replace('_', '-')}"
        if options[old] and options[new]:
            raise click.UsageError(f"Options {now} and {flag} cannot be specified together.")
        if options[old]:
            click.echo(
                f"Warning: {flag} is deprecated and will be removed in a future version. "
                f"Use {now} instead."
            )
    if options["max_partition_memory_bytes"] is not None:
        click.echo(
            "Warning: --max-partition-memory-bytes is deprecated and will be removed in Apache "
            "Kafka 5.0. Use --batch-size instead."
        )
    if not options["line_reader"].endswith("LineMessageReader"):
        raise click.UsageError("--line-reader: only LineMessageReader is supported")
    properties = {
        **read_file(options["reader_config"]),
        **key_values_raw(options["reader_property"] or options["old_reader_property"]),
    }
    from ottla.clients.blocking import Producer

    try:
        reader = LineReader(properties)
        with Producer(config=producer_settings(_settings(options))) as producer:
            _send_all(producer, options["topic"], reader.read(_lines()), wait=options["sync"])
    except (LineError, KafkaError) as error:
        shown = failure_text(error)
        if isinstance(error, LineError):
            shown = f"org.apache.kafka.common.KafkaException: {error}"
        click.echo(shown, err=True)
        sys.exit(1)


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """Merge flags and file; a flag that was given overrides the file."""
    given = read_file(options["command_config"] or options["producer_config"])
    given |= key_values(options["command_property"] or options["producer_property"])
    partition_bytes = options["max_partition_memory_bytes"]
    flags = {
        "bootstrap.servers": options["bootstrap_server"],
        "compression.type": options["compression_codec"],
        "send.buffer.bytes": options["socket_buffer_size"],
        "retry.backoff.ms": options["retry_backoff_ms"],
        "retries": options["message_send_max_retries"],
        "linger.ms": options["timeout"],
        "acks": options["request_required_acks"],
        "request.timeout.ms": options["request_timeout_ms"],
        "metadata.max.age.ms": options["metadata_expiry_ms"],
        "max.block.ms": options["max_block_ms"],
        "buffer.memory": options["max_memory_bytes"],
        "batch.size": options["batch_size"] if partition_bytes is None else partition_bytes,
    }
    context = click.get_current_context()
    for name, value in flags.items():
        option = _OPTION_OF.get(name)
        source = None if option is None else context.get_parameter_source(option)
        was_given = option is None or source is click.core.ParameterSource.COMMANDLINE
        if value is not None and (was_given or name not in given):
            given[name] = value
    given.setdefault("client.id", "console-producer")
    return given


_OPTION_OF = {
    "compression.type": "compression_codec",
    "send.buffer.bytes": "socket_buffer_size",
    "retry.backoff.ms": "retry_backoff_ms",
    "retries": "message_send_max_retries",
    "linger.ms": "timeout",
    "acks": "request_required_acks",
    "request.timeout.ms": "request_timeout_ms",
    "metadata.max.age.ms": "metadata_expiry_ms",
    "max.block.ms": "max_block_ms",
    "buffer.memory": "max_memory_bytes",
    "batch.size": "batch_size",
}


def _lines() -> Iterator[str]:
    """Yield lines of standard input, with a prompt on a terminal."""
    prompt = sys.stdin.isatty()
    stream = sys.stdin
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        # Java also ends a line at \r
        reconfigure(encoding="utf-8", errors="surrogateescape", newline=None)
    while True:
        if prompt:
            click.echo(">", nl=False)
        line = stream.readline()
        if not line:
            return
        yield line


# Errors of a single record; sending continues with the next one.
_OF_ONE_RECORD = {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.REQUEST_TIMED_OUT,
}


def _send_all(producer: Producer, topic: str, messages: Iterator[Message], *, wait: bool) -> None:
    for message in messages:
        sizes = [_size(message.key), _size(message.value)]
        try:
            delivery = producer.send(
                topic,
                message.value,
                message.key,
                headers=message.headers,
                on_delivery=partial(_report, topic, sizes),
            )
        except KafkaError as error:
            if wait or error.code not in _OF_ONE_RECORD:
                raise
            _report_error(topic, sizes, error)
            continue
        if wait:
            delivery.result()
    producer.flush()


def _size(data: bytes | None) -> str:
    return "null" if data is None else f"{len(data)} bytes"


def _report(topic: str, sizes: list[str], delivery: Delivery) -> None:
    """Report a record that could not be sent; sending continues."""
    try:
        delivery.result(0)
    except Exception as error:  # noqa: BLE001 - any error is reported and sending continues
        _report_error(topic, sizes, error)


def _report_error(topic: str, sizes: list[str], error: Exception) -> None:
    click.echo(
        f"Error when sending message to topic {topic} with key: {sizes[0]}, value: {sizes[1]} "
        f"with error: {java_text(error)}",
        err=True,
    )


class LineError(Exception):
    """A line that cannot be parsed to a record."""


class Message(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class LineReader:
    """Parses records from lines according to its properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        given = {**DEFAULTS, **properties}
        self._parse_key = given["parse.key"].strip().lower() == "true"
        self._parse_headers = given["parse.headers"].strip().lower() == "true"
        self._ignore_errors = given["ignore.error"].strip().lower() == "true"
        self._key_separator = given["key.separator"]
        self._headers_delimiter = given["headers.delimiter"]
        self._headers_separator = given["headers.separator"]
        self._header_key_separator = given["headers.key.separator"]
        self._null_marker = given["null.marker"]
        separators = {
            "key.separator": self._key_separator,
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._header_key_separator,
        }
        if self._headers_delimiter == self._headers_separator:
            raise LineError("headers.delimiter and headers.separator may not be equal")
        if self._headers_delimiter == self._header_key_separator:
            raise LineError("headers.delimiter and headers.key.separator may not be equal")
        if self._headers_separator == self._header_key_separator:
            raise LineError("headers.separator and headers.key.separator may not be equal")
        for name, separator in separators.items():
            if self._null_marker and self._null_marker == separator:
                raise LineError(f"null.marker and {name} may not be equal")

    def read(self, lines: Iterable[str]) -> Iterator[Message]:
        """Yield one record per line; raises LineError for an invalid line."""
        for number, line in enumerate(lines, start=1):
            yield self._message(line.rstrip("\n").removesuffix("\r"), number)

    def _message(self, line: str, number: int) -> Message:
        headers: tuple[tuple[str, bytes | None], ...] = ()
        rest = line
        if self._parse_headers:
            text, rest = self._cut(rest, self._headers_delimiter, "headers delimiter", number)
            headers = self._headers(text, number)
        key = None
        if self._parse_key:
            key, rest = self._cut(rest, self._key_separator, "key separator", number)
        return Message(self._bytes(key), self._bytes(rest), headers)

    def _cut(self, text: str, separator: str, what: str, number: int) -> tuple[str | None, str]:
        before, found, after = text.partition(separator)
        if found:
            return before, after
        if self._ignore_errors:
            return None, text
        raise LineError(f"No {what} found on line number {number}: '{text}'")

    def _headers(self, text: str | None, number: int) -> tuple[tuple[str, bytes | None], ...]:
        if text is None or (self._null_marker and text == self._null_marker):
            return ()
        pairs = []
        parts = text.split(self._headers_separator)
        while text and parts and not parts[-1]:  # as Java's split, which drops trailing empty parts
            parts.pop()
        for part in parts:
            name, found, value = part.partition(self._header_key_separator)
            if found and self._null_marker and name == self._null_marker:
                raise LineError(
                    f"Header keys should not be equal to the null marker '{name}' as they can't be "
                    "null"
                )
            if found:
                pairs.append((name, self._bytes(value)))
            elif self._ignore_errors:
                pairs.append((part, None))
            else:
                raise LineError(
                    f"No header key separator found in pair '{part}' on line number {number}"
                )
        return tuple(pairs)

    def _bytes(self, text: str | None) -> bytes | None:
        if text is None or (self._null_marker and text == self._null_marker):
            return None
        return text.encode("utf-8", "surrogateescape")
