"""A blocking connection to one broker, for processes without an event loop.

Kafka: org.apache.kafka.clients.NetworkClientUtils.sendAndReceive.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

from ottla.clients.login import login_factory
from ottla.clients.settings import COMMON, read_settings
from ottla.clients.tls import client_context
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.network.request_channel import Channel, ChannelState
from ottla.types import FileSlice

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from ottla.protocol.schema import Request

STEP_BYTES = 4 * 1024 * 1024


class BlockingConnection:
    """One socket with one request at a time: connect, negotiate versions, log in, `request`.

    A KafkaError with NETWORK_EXCEPTION, REQUEST_TIMED_OUT or CORRUPT_MESSAGE closes the connection.
    The settings are those common to all clients.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float = 30.0,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        read = read_settings(COMMON, config, settings)
        self.host, self.port = host, port
        self._channel = Channel(read.client_id or "ottla", login=login_factory(read))
        tls = client_context(read)
        self._socket = self._connect(timeout)
        if tls is not None:
            self._socket = self._secured(tls)
        self._channel.connected(_now_ms(), timeout_ms=int(timeout * 1000))
        self._exchange_until(lambda: self._channel.ready, time.monotonic() + timeout)

    def __repr__(self) -> str:
        return f"BlockingConnection({self.host}:{self.port})"

    def _connect(self, timeout: float) -> socket.socket:
        try:
            made = socket.create_connection((self.host, self.port), timeout=timeout)
        except (OSError, UnicodeError, OverflowError) as error:  # invalid host names and ports too
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION,
                f"cannot reach {self.host}:{self.port} "
                f"({getattr(error, 'strerror', None) or error}): is a broker running there?",
            ) from error
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def _secured(self, tls: ssl.SSLContext) -> socket.socket:
        try:
            name = self.host if tls.check_hostname else None
            return tls.wrap_socket(self._socket, server_hostname=name)
        except OSError as error:
            self._socket.close()
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION,
                f"{self.host}:{self.port}: TLS handshake failed ({error.strerror or error})",
            ) from error

    def request(self, request: Request, timeout: float = 30.0) -> Any:
        """Send a request and return its response; the caller checks the error codes inside it.

        Raises KafkaError as `Channel.submit` says. A ProduceRequest with acks=0 returns None.
        """
        expects_response = getattr(request, "acks", 1) != 0
        pending = self._channel.submit(
            request,
            now_ms=_now_ms(),
            timeout_ms=int(timeout * 1000),
            expects_response=expects_response,
        )
        self._exchange_until(lambda: pending.done, time.monotonic() + timeout)
        return pending.value

    def _exchange_until(self, finished: Any, deadline: float) -> None:
        try:
            self._flush()
            while not finished():
                if self._channel.state is ChannelState.CLOSED:
                    self.close()
                    raise self._channel.failure or KafkaError(ErrorCode.NETWORK_EXCEPTION)
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                self._channel.receive(memoryview(self._read_frame()), _now_ms())
                self._flush()
        except TimeoutError as error:
            self.close()
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"no answer from {self.host}:{self.port} in time"
            ) from error
        except OSError as error:
            self.close()
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"{self.host}:{self.port}: {error.strerror or error}"
            ) from error
        except CorruptMessage:
            self.close()
            raise

    def _flush(self) -> None:
        buffers, self._channel.outgoing = self._channel.outgoing, []
        if buffers:
            parts = [item.read() if isinstance(item, FileSlice) else item for item in buffers]
            self._socket.sendall(b"".join(parts))

    def _read_frame(self) -> bytearray:
        size = int.from_bytes(self._read(4), "big", signed=True)
        if not 0 <= size <= self._channel.max_frame:
            raise CorruptMessage(f"the peer announced a frame of {size} bytes")
        return self._read(size)

    def _read(self, size: int) -> bytearray:
        data = bytearray(min(size, STEP_BYTES))
        filled = 0
        while filled < size:
            if filled == len(data):
                data += bytes(min(size - filled, filled))
            count = self._socket.recv_into(memoryview(data)[filled:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            filled += count
        return data

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._channel.closed()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
