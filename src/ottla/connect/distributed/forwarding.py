"""The REST API of a worker of a group: requests go to the leader or the owner.

Kafka: org.apache.kafka.connect.runtime.rest.HerderRequestHandler.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ottla.connect.distributed.herder import RequestTarget
from ottla.connect.distributed.signing import ALGORITHM, DIGESTS, SIGNATURE, is_signed
from ottla.connect.errors import BadRequestException
from ottla.connect.runtime.rest import ConnectApi, HttpError, RestAnswer
from ottla.http.host import BODY_BYTES_MAX

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.connect.distributed.worker import Distributed
    from ottla.connect.runtime.rest_access import RestAccess
    from ottla.http.host import Page

_NO_LEADER: Final = (
    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance "
    "was underway."
)
_CONFLICT: Final = (
    "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
)
_TASKS_BYTES_MAX: Final = 16 << 20
"""Of the settings of a connector's tasks from another worker; Kafka has no limit."""
_LARGE_MAX: Final = 4
"""Bodies above BODY_BYTES_MAX at a time: whether one is signed is known only at its end."""
_NO_KEY: Final = (
    "This worker is still starting up and has not been able to read a session key from the config "
    "topic yet"
)


class DistributedApi(ConnectApi):
    """The REST API of a worker that may not be the one whom a request is for."""

    def __init__(self, worker: Distributed, cluster_id: str) -> None:
        """Take the worker, and the id of the cluster that it works on."""
        super().__init__(worker, cluster_id)
        self._distributed = worker
        self._large = threading.BoundedSemaphore(_LARGE_MAX)
        """Not of asyncio: each listener has a loop of its own."""
        self._routes["POST", "connectors/*/tasks"] = self._take_tasks

    def pages(self, rules: RestAccess) -> list[Page]:
        """Return the page of all paths, and one of requests between workers."""
        path = "/connectors/{name:path}/tasks"  # a name may have slashes
        *others, every = super().pages(rules)
        return [*others, every._replace(path=path, body_bytes_max=_TASKS_BYTES_MAX), every]

    async def _dispatch(self, request: Request) -> RestAnswer:
        try:
            return await super()._dispatch(request)
        except RequestTarget as error:
            forward = request.query_params.get("forward")
            if forward is not None and forward.lower() != "true":
                raise HttpError(409, _CONFLICT) from None
            if error.url is None:
                raise HttpError(409, _NO_LEADER) from None
            url = error.url
        return await self._forward(request, url, may_repeat=forward is None)

    async def _forward(self, request: Request, url: str, *, may_repeat: bool) -> RestAnswer:
        """Have another worker answer; it may send the request on once more."""
        raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
        parameters = [it for it in request.query_params.multi_items() if it[0] != "forward"]
        words = [*parameters, ("forward", "true" if may_repeat else "false")]
        query = "&".join(f"{quote(name)}={quote(it)}" for name, it in words)
        target = f"{raw.decode('ascii', 'replace').partition('?')[0]}?{query}"
        passed = ("content-type", "authorization", SIGNATURE.lower(), ALGORITHM.lower())
        headers = {name: request.headers[name] for name in passed if name in request.headers}
        body = await request.body()
        status, text, location = await asyncio.wrap_future(
            self._distributed.forward(url, request.method, target, body, headers)
        )
        try:
            parsed = json.loads(text) if text else None
        except ValueError:
            raise HttpError(500, f"{url} answered {status} without JSON") from None
        return RestAnswer(parsed, status, {} if location is None else {"location": location})

    async def _take_tasks(self, request: Request, name: str) -> RestAnswer:
        """Write the settings of tasks that another worker's connector has made."""
        size = request.headers.get("content-length")
        is_large = size is None or int(size) > BODY_BYTES_MAX
        if is_large and not self._large.acquire(blocking=False):
            raise HttpError(503, f"{_LARGE_MAX} large requests are read: try again later")
        try:
            await self._check_signature(request)
            configs = json.loads(await request.body())
        except ValueError as error:
            raise HttpError(500, f"Unexpected end or character of JSON: {error}") from None
        finally:
            if is_large:
                self._large.release()
        if not isinstance(configs, list) or not all(isinstance(it, dict) for it in configs):
            raise HttpError(500, "Cannot deserialize the settings of tasks from this JSON")
        return RestAnswer(await self._call(lambda it: it.put_task_configs(name, configs)))

    async def _check_signature(self, request: Request) -> None:
        """Check a request between workers; its body is read when its headers are good."""
        headers = request.headers
        signature, algorithm = headers.get(SIGNATURE), headers.get(ALGORITHM)
        if self._distributed.values["connect.protocol"].lower() != "sessioned":
            return
        if signature is None or algorithm is None:
            raise BadRequestException("Internal request missing required signature")
        accepted = self._distributed.values["inter.worker.verification.algorithms"]
        if algorithm not in accepted:
            raise BadRequestException(
                f"This worker does not support the '{algorithm}' key signing algorithm used by "
                "other workers. This worker is currently configured to use: "
                f"[{', '.join(accepted)}]. Check that all workers' configuration files permit the "
                "same set of signature algorithms, and correct any misconfigured worker and "
                "restart it."
            )
        if algorithm not in DIGESTS:
            raise BadRequestException(f"Algorithm {algorithm} not available")
        key = await self._call(lambda it: it.session_key)
        if key is None:
            raise HttpError(503, _NO_KEY)
        if not is_signed(key, await request.body(), signature, algorithm):
            raise HttpError(403, "Internal request contained invalid signature.")
