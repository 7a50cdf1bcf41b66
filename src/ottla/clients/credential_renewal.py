"""The thread that renews what a client logs in with: a token, or tickets.

Kafka: ExpiringCredentialRefreshingLogin of org.apache.kafka.common.security.oauthbearer.internals.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol


class Renewable(Protocol):
    """What a client logs in with, which expires."""

    def renew(self) -> bool:
        """Get another one; False when that fails, and the one that there is stays."""

    def seconds_to_renewal(self) -> float:
        """Return the time until it should be renewed."""


def keep_renewed(credential: Renewable, name: str, retry_s: float) -> None:
    """Renew a credential in a thread of that name until nothing refers to it any more."""
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
        is_renewed = held is None or held.renew()
        del held
