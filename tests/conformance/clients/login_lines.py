"""What the Python programs of `logins.py` share: the lines that they read and say.

Some libraries say why they cannot connect only in the log, so its last line is said, too.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.conformance.clients.commands import say

if TYPE_CHECKING:
    from collections.abc import Callable

NONE = "-"


class Login(NamedTuple):
    """One login; a field without a value is "-"."""

    name: str
    protocol: str
    mechanism: str
    bootstrap: str
    user: str = NONE
    password: str = NONE
    token: str = NONE
    authority: str = NONE
    certificate: str = NONE
    key: str = NONE

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def token_text(self) -> str:
        """Return the token of OAUTHBEARER."""
        return Path(self.token).read_text()

    @property
    def own(self) -> tuple[str, str] | None:
        """Return the files of the client's own certificate and key."""
        return None if self.certificate == NONE else (self.certificate, self.key)


class LastLine(logging.Handler):
    """Keeps the last error in the log of a library."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an error."""
        self.text = record.getMessage()


def play(round_trip: Callable[[Login, str], str], *, logger: str) -> None:
    """Play all logins of the file; round_trip(login, topic) returns the record that was read."""
    file, topic = sys.argv[1:]
    logged = LastLine(logging.ERROR)
    logging.getLogger(logger).addHandler(logged)
    for line in Path(file).read_text().splitlines():
        login = Login(*line.split("\t"))
        try:
            said = f"in {round_trip(login, topic)}"
        except Exception as error:
            said = f"refused {type(error).__name__}: {error}; {logged.text}".replace("\n", " ")
        say(login.name, said)
