"""A file whose slices network tests send."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket


class OpenFile:
    """A temporary file that counts its pins."""

    def __init__(self, content: bytes) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        self._file.write(content)
        self._file.flush()
        self.pins = 0

    def send_to(self, sock: socket.socket, position: int, size: int) -> int:
        return os.sendfile(sock.fileno(), self._file.fileno(), position, size)

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, position)

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1

    def close(self) -> None:
        self._file.close()
