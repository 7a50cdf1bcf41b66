"""The quickstart's node: a child process that ends when its parent does.

Kafka: none; its quickstart starts a broker by hand. A separate process keeps the node's loop free
of the producer's and Spark's Python code. It stops and removes a temporary directory when its
standard input ends, so also when the parent is killed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from typing import Self

STOP_SECONDS = 10.0


class NodeProcess:
    """A running node. A context manager that stops the node on exit."""

    def __init__(self, process: subprocess.Popen[bytes], bootstrap: str) -> None:
        self._process = process
        self.bootstrap = bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the node and wait for it; kill it after a timeout."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class DataDirectory(NamedTuple):
    """The directory of a node's data."""

    path: str
    is_temporary: bool


def start_node(data: DataDirectory) -> NodeProcess:
    """Start a node on a free port of 127.0.0.1; raises OttlaError with the reason."""
    arguments = [sys.executable, "-m", "ottla.quickstart.node", data.path]
    process = subprocess.Popen(  # noqa: S603 - this module
        [*arguments, "temporary"] if data.is_temporary else arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in the terminal reaches the parent only
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the node ended while it started"}
    except BaseException:
        process.kill()
        process.wait()
        raise
    if "error" in answer:
        process.wait(STOP_SECONDS)
        raise OttlaError(answer["error"])
    return NodeProcess(process, answer["bootstrap"])


def main(arguments: list[str]) -> None:
    """Serve until standard input ends; the first line of output has the address or the error."""
    log_dir, is_temporary = arguments[0], arguments[1:] == ["temporary"]
    try:
        asyncio.run(_serve(log_dir))
    except Exception as error:  # noqa: BLE001 - the parent reports any error in one line
        _answer({"error": str(error).strip() or repr(error)})
        sys.exit(1)
    finally:
        if is_temporary:
            shutil.rmtree(log_dir, ignore_errors=True)


async def _serve(log_dir: str) -> None:
    from ottla.config.log_lines import LoggingSettings
    from ottla.server.logging.lines import configure_logging
    from ottla.server.node.node import Node
    from ottla.server.node.settings import node_settings
    from ottla.server.system.real import RealEnvironment

    configure_logging(LoggingSettings.parse({"log.level": "ERROR"}))
    overrides = {
        "log.dirs": log_dir,
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "offsets.topic.num.partitions": "4",
    }
    node = Node(node_settings(None, overrides, port=0).config, RealEnvironment(), may_format=True)
    await node.start()
    _answer({"bootstrap": node.bootstrap})
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_wait_for_end, args=(loop, ended), daemon=True).start()
    await ended.wait()
    await node.stop()


def _answer(answer: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _wait_for_end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Read standard input to its end, when the parent closes it or ends."""
    while sys.stdin.buffer.read(1):
        pass
    loop.call_soon_threadsafe(ended.set)


if __name__ == "__main__":
    main(sys.argv[1:])
