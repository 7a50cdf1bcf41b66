"""What all tests share: how hypothesis searches.

No deadline, since a busy machine is no bug; in CI the examples are the same in every run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ottla",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ottla")
