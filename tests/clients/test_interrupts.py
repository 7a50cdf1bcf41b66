"""Ctrl-C at a consumer: in an idle poll, under load, and while it closes.

Kafka: the shutdown hook of org.apache.kafka.tools.consumer.ConsoleConsumer.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ottla.clients.blocking import Producer
from ottla.clients.loops import Interrupts
from ottla.testing.cluster import Cluster
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 4 * WAIT_S

POLLING = """
import os, random, signal, sys, threading
from ottla.clients.blocking import Consumer

bootstrap, spread_s, rounds = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
polling, polled, caught = threading.Event(), [], 0

def interrupt():
    for _ in range(rounds):
        polling.wait()
        polling.clear()
        threading.Event().wait(random.random() * spread_s)
        os.kill(os.getpid(), signal.SIGINT)

settings = {"group_id": f"p{spread_s}", "auto_offset_reset": "earliest"}
consumer = Consumer("t", bootstrap_servers=bootstrap, **settings)
consumer.poll(30)
consumer.seek_to_beginning()
threading.Thread(target=interrupt, daemon=True).start()
while caught < rounds:
    try:
        polling.set()
        while True:
            polled.append(consumer.poll(60, 7))
    except KeyboardInterrupt:
        caught += 1
consumer.close()
offsets = [record.offset for records in polled for record in records]
print(caught, offsets == list(range(len(offsets))))
"""

CLOSING = """
import os, random, signal, sys, threading
from ottla.clients.blocking import Consumer

caught = 0
for number in range(int(sys.argv[2])):
    consumer = Consumer("t", bootstrap_servers=sys.argv[1], group_id=f"g{number}")
    consumer.poll(0.05)
    delay_s = random.random() * 0.004
    try:
        threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGINT)).start()
        consumer.close()
        while True:  # a signal just before a long wait would be noticed only after it
            threading.Event().wait(0.01)
    except KeyboardInterrupt:
        caught += 1
    consumer.close()
    assert consumer._thread.loop.is_closed()
print(caught, len([one for one in threading.enumerate() if one.name == "ottla-consumer"]))
"""


@pytest.fixture(autouse=True)
def _pythons_own_handler() -> Iterator[None]:
    """Take away a handler that another test has left: Spark's context puts one in for good."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Yield the address of a node with 2,000 records."""
    with Cluster() as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send_many("t", [b"%d" % number for number in range(2000)])
            producer.flush()
        yield cluster.bootstrap


def _run(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("spread_s", [0.0, 0.02])
def test_ctrl_c_ends_polls_and_loses_no_record(bootstrap: str, spread_s: float) -> None:
    """Each Ctrl-C ends a poll, busy or idle, and no record is skipped by it."""
    assert _run(POLLING, bootstrap, str(spread_s), "60") == "60 True"


def test_ctrl_c_while_closing_leaves_nothing_behind(bootstrap: str) -> None:
    """Close is cut short by Ctrl-C, and thread and loop are gone nevertheless."""
    assert _run(CLOSING, bootstrap, "20") == "20 0"


def test_console_consumer_ends_with_130(bootstrap: str) -> None:
    """The tool says what it processed and ends with the status of Kafka's."""
    command = [sys.executable, "-m", "ottla", "console-consumer", "--from-beginning"]
    command += ["--bootstrap-server", bootstrap, "--topic", "t"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tool:
        assert tool.stdout is not None
        for _ in range(2000):
            tool.stdout.readline()
        tool.send_signal(signal.SIGINT)
        _, errors = tool.communicate(timeout=DEADLINE_S)
    assert tool.returncode == 130
    assert re.fullmatch(r"Processed a total of (1999|2000) messages\n", errors)  # the last may wait


def test_interrupts_are_kept_on_request() -> None:
    """What is kept is raised by the next call; without one nothing is."""
    interrupts = Interrupts()
    interrupts.hold()
    interrupts.hold()
    calls: list[str] = []
    interrupts.set_callback(lambda: calls.append("called"))
    signal.raise_signal(signal.SIGINT)
    interrupts.release()
    interrupts.release(keep=True)
    assert calls == ["called"]
    with pytest.raises(KeyboardInterrupt):
        interrupts.hold()
    interrupts.hold()
    interrupts.release()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_is_raised_on_the_spot() -> None:
    """Who presses Ctrl-C twice does not wait."""
    interrupts = Interrupts()
    interrupts.hold()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupts.release()
