"""Renews a client's credential in a thread: a token, or Kerberos tickets.

Kafka: ExpiringCredentialRefreshingLogin of org.apache.kafka.common.security.oauthbearer.internals.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

_log = logging.getLogger("ottla.clients.login")


class Renewable(Protocol):
    """A credential that expires."""

    def renew(self) -> bool:
        """Get a new one; False when that fails and the current one stays."""

    def seconds_to_renewal(self) -> float:
        """Return the time until it should be renewed."""


def keep_renewed(credential: Renewable, name: str, retry_s: float) -> None:
    """Renew a credential in a thread of that name until it is garbage-collected."""
    ended = threading.Event()
    weakref.finalize(credential, ended.set)
    threading.Thread(
        target=_renew, args=(weakref.ref(credential), ended, retry_s), name=name, daemon=True
    ).start()


def _renew(credential: weakref.ref[Renewable], ended: threading.Event, retry_s: float) -> None:
    is_renewed = True
    while True:
        held = credential()
        if held is None:
            return
        wait_s = held.seconds_to_renewal() if is_renewed else retry_s
        del held
        if ended.wait(min(wait_s, threading.TIMEOUT_MAX)):
            return
        held = credential()
        try:
            is_renewed = held is None or held.renew()
        except Exception:  # noqa: BLE001 - files and plug-ins are the user's: try again
            _log.exception("cannot renew the credential")
            is_renewed = False
        del held
