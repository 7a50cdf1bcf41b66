"""What a request costs its client's quotas, without a node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.config.broker import parse_broker_config
from ottla.protocol.api_keys import ApiKey
from ottla.quota.quotas import Quotas
from ottla.server.node.settings import development_defaults
from ottla.server.requests.context import QuotaUse

NOW_MS = 5_000_000
APP = (("client-id", "app"),)


class Away:
    """A connection whose client has gone."""

    is_closed = True


@pytest.mark.parametrize("acks", [0, 1])
def test_bytes_of_a_client_that_has_gone_count(acks: int) -> None:
    """Who hangs up while its bytes are flushed would never reach its quota."""
    quotas = Quotas(parse_broker_config(development_defaults()))
    quotas.update({APP: {"producer_byte_rate": 1000.0}}, [APP])
    clock = SimpleNamespace(monotonic_ms=lambda: NOW_MS)
    ctx: Any = SimpleNamespace(
        api=SimpleNamespace(is_throttled=True),
        api_key=ApiKey.PRODUCE,
        broker=SimpleNamespace(quotas=quotas, clock=clock),
        client_id="app",
        connection=Away(),
        user="ANONYMOUS",
    )
    use = QuotaUse(20_000, lambda: 1.0)
    use.handled()
    assert quotas.produced.record("ANONYMOUS", "app", 0, NOW_MS) == 0
    use.answer(ctx, [] if acks else None)
    assert quotas.produced.record("ANONYMOUS", "app", 0, NOW_MS) == 10_000
