"""What all tests share: how hypothesis searches, and that Ctrl-C can be sent.

No deadline, since a busy machine is no bug; in CI the examples are the same in every run. A shell
that starts the tests in the background has them ignore SIGINT, and every process that they start.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ottla",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ottla")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
