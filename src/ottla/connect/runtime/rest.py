"""The REST API of a worker.

Requests are read on the HTTP host's loop; their answers come from the herder's thread.

Kafka: org.apache.kafka.connect.runtime.rest.{RestServer, resources, errors}.
"""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote

from starlette.responses import Response

from ottla.connect import PLUGIN_VERSION
from ottla.connect.errors import (
    AlreadyExistsException,
    BadRequestException,
    ConnectException,
    NotFoundException,
)
from ottla.connect.metrics import series_of
from ottla.connect.runtime.state import ConnectorTaskId, TargetState
from ottla.connect.settings import METRIC_NAMES
from ottla.http.host import Page
from ottla.metrics.families import OPENMETRICS_TYPE, TEXT_TYPE, Exposition, Spelling

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from ottla.connect.runtime.rest_access import RestAccess
    from ottla.connect.runtime.standalone import HerderThread

log = logging.getLogger("ottla.connect")
_COMMIT: Final = "a9ce3221537b8653"
"""The commit of Kafka 4.3.0, which clients read with the version."""
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_HEALTHY: Final = "Worker has completed startup and is ready to handle requests."
_UNHEALTHY: Final = (
    "Worker was unable to handle this request and may be unable to handle other requests."
)
_HEALTH_S: Final = 10.0
"""Time for the herder's answer to a probe, as in Kafka."""
_STATUS: Final[dict[type[Exception], int]] = {
    NotFoundException: 404,
    AlreadyExistsException: 409,
    BadRequestException: 400,
}
_TARGETS: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}


class HttpError(Exception):
    """An answer of an error by its status."""

    def __init__(self, status: int, text: str | None = None, *, is_plain: bool = False) -> None:
        super().__init__(text or f"HTTP {status} {HTTPStatus(status).phrase}")
        self.status, self.is_plain = status, is_plain


class RestAnswer(NamedTuple):
    """An answer: its body is written as JSON."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}


def _bytes(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="backslashreplace")  # of half a character JSON's escape


def _json(answer: RestAnswer) -> Response:
    body = b"" if answer.body is None else _bytes(answer.body)
    media_type = None if answer.body is None else "application/json"
    return Response(body, answer.status, dict(answer.headers), media_type)


def _failure(error: Exception) -> Response:
    if isinstance(error, HttpError):
        body = _bytes({"error_code": error.status, "message": str(error)})
        media_type = None if error.is_plain else "application/json"
        return Response(body, error.status, media_type=media_type)
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    if status == 500 and not isinstance(error, ConnectException):
        log.error("a request failed", exc_info=error)
    return _json(RestAnswer({"error_code": status, "message": str(error)}, status))


class ConnectApi:
    """Answers the requests of one worker."""

    def __init__(self, worker: HerderThread, cluster_id: str) -> None:
        """Take the worker, and the id of the cluster that it works on."""
        self._worker = worker
        self._cluster_id = cluster_id
        connector, task = "connectors/*", "connectors/*/tasks/*"
        self._routes: dict[tuple[str, str], Callable[..., Awaitable[RestAnswer]]] = {
            ("GET", ""): self._root,
            ("GET", "health"): self._health,
            ("GET", "connectors"): self._list,
            ("POST", "connectors"): self._create,
            ("GET", connector): self._ask(lambda herder, name: herder.info(name)),
            ("DELETE", connector): self._ask(lambda herder, name: herder.delete(name), 204),
            ("GET", f"{connector}/config"): self._ask(lambda herder, name: herder.config(name)),
            ("PUT", f"{connector}/config"): self._put,
            ("PATCH", f"{connector}/config"): self._patch,
            ("GET", f"{connector}/status"): self._ask(lambda herder, name: herder.status(name)),
            ("GET", f"{connector}/tasks"): self._ask(lambda herder, name: herder.tasks(name)),
            ("GET", f"{task}/status"): self._task_status,
            ("POST", f"{task}/restart"): self._restart_task,
            ("POST", f"{connector}/restart"): self._restart,
            ("PUT", f"{connector}/pause"): self._target(TargetState.PAUSED, 202),
            ("PUT", f"{connector}/resume"): self._target(TargetState.STARTED, 202),
            ("PUT", f"{connector}/stop"): self._target(TargetState.STOPPED, 204),
            ("GET", f"{connector}/topics"): self._topics,
            ("PUT", f"{connector}/topics/reset"): self._reset_topics,
            ("GET", f"{connector}/offsets"): self._offsets,
            ("PATCH", f"{connector}/offsets"): self._alter_offsets,
            ("DELETE", f"{connector}/offsets"): self._reset_offsets,
            ("GET", "connector-plugins"): self._plugins,
            ("GET", "connector-plugins/*/config"): self._plugin_config,
            ("PUT", "connector-plugins/*/config/validate"): self._validate,
        }

    def pages(self, rules: RestAccess) -> list[Page]:
        """Return the pages of a listener."""
        return [
            Page("/metrics", rules.guarded(self._metrics), is_public=True),
            Page("/{path:path}", rules.guarded(self.answer), _METHODS, is_public=True),
        ]

    async def _metrics(self, request: Request) -> Response:
        """Answer a scrape."""
        beans = await asyncio.wrap_future(self._worker.metrics())
        openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
        exposition = Exposition(Spelling(self._worker.values[METRIC_NAMES]))
        body = b"".join(exposition.render(series_of(beans), openmetrics=openmetrics))
        return Response(body, media_type=OPENMETRICS_TYPE if openmetrics else TEXT_TYPE)

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        try:
            return _json(await self._dispatch(request))
        except Exception as error:  # noqa: BLE001 - every one is an answer
            return _failure(error)

    async def _dispatch(self, request: Request) -> RestAnswer:
        raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
        path = raw.decode("ascii", "replace").partition("?")[0].strip("/")
        words = [unquote(it) for it in path.split("/")] if path else []
        shape, parts = _shape(words)
        allowed = [method for method, known in self._routes if known == shape]
        if not allowed:
            raise HttpError(404, is_plain=True)
        method = "GET" if request.method == "HEAD" else request.method
        handler = self._routes.get((method, shape))
        if handler is None:
            raise HttpError(405, is_plain=True)
        return await handler(request, *parts)

    async def _call(self, step: Callable[[Any], Any]) -> Any:
        return await asyncio.wrap_future(self._worker.call(step))

    def _ask(
        self, step: Callable[[Any, str], Any], status: int = 200
    ) -> Callable[..., Awaitable[RestAnswer]]:
        async def handler(_: Request, name: str) -> RestAnswer:
            return RestAnswer(await self._call(lambda herder: step(herder, name)), status)

        return handler

    def _target(self, target: TargetState, status: int) -> Callable[..., Awaitable[RestAnswer]]:
        return self._ask(lambda herder, name: herder.set_target(name, target), status)

    # ------------------------------------------------------------ the worker

    async def _root(self, _: Request) -> RestAnswer:
        return RestAnswer(
            {"version": PLUGIN_VERSION, "commit": _COMMIT, "kafka_cluster_id": self._cluster_id}
        )

    async def _health(self, _: Request) -> RestAnswer:
        try:
            async with asyncio.timeout(_HEALTH_S):
                await self._call(lambda _: None)  # the herder's thread answers
        except TimeoutError:
            return RestAnswer({"status": "unhealthy", "message": _UNHEALTHY}, 500)
        return RestAnswer({"status": "healthy", "message": _HEALTHY})

    # ------------------------------------------------------------ connectors

    async def _list(self, request: Request) -> RestAnswer:
        expansions = set(request.query_params.getlist("expand")) & {"status", "info"}

        def step(herder: Any) -> Any:
            if not expansions:
                return herder.names()
            expanded: dict[str, dict[str, Any]] = {}
            for name in herder.names():
                expanded[name] = {}
                for kind in expansions:
                    try:
                        expanded[name][kind] = getattr(herder, kind)(name)
                    except NotFoundException:
                        log.debug("%s has no %s yet", name, kind)
            return expanded

        return RestAnswer(await self._call(step))

    async def _create(self, request: Request) -> RestAnswer:
        body = await _object(request)
        name, config = body.get("name"), body.get("config")
        if body.keys() - {"name", "config", "initial_state"} or not isinstance(config, dict):
            raise HttpError(500, "Unrecognized fields, or no config")
        name = str(name or config.get("name") or "").strip()
        initial = body.get("initial_state")
        target = initial_target(initial)
        full = _with_name(name, config)
        _, info = await asyncio.wrap_future(
            self._worker.put(name, full, may_replace=False, initial=target)
        )
        return RestAnswer(info, 201, _location(request, name))

    async def _put(self, request: Request, name: str) -> RestAnswer:
        config = _with_name(name, await _object(request))
        is_new, info = await asyncio.wrap_future(self._worker.put(name, config, may_replace=True))
        return RestAnswer(info, 201, _location(request, name)) if is_new else RestAnswer(info)

    async def _patch(self, request: Request, name: str) -> RestAnswer:
        changes = await _object(request)
        _with_name(name, {key: it for key, it in changes.items() if it is not None})
        texts = {key: None if it is None else _text(it) for key, it in changes.items()}
        return RestAnswer(await asyncio.wrap_future(self._worker.patch(name, texts)))

    async def _restart(self, request: Request, name: str) -> RestAnswer:
        include = request.query_params.get("includeTasks", "").lower() == "true"
        failed = request.query_params.get("onlyFailed", "").lower() == "true"
        if not include and not failed:
            return RestAnswer(await self._call(lambda herder: herder.restart(name)), 204)
        return RestAnswer(
            await self._call(
                lambda herder: herder.restart_with_tasks(
                    name, include_tasks=include, only_failed=failed
                )
            ),
            202,
        )

    async def _task_status(self, _: Request, name: str, number: str) -> RestAnswer:
        task = _task(name, number)
        return RestAnswer(await self._call(lambda herder: herder.task_status(task)))

    async def _restart_task(self, _: Request, name: str, number: str) -> RestAnswer:
        task = _task(name, number)
        return RestAnswer(await self._call(lambda herder: herder.restart_task(task)), 204)

    async def _topics(self, _: Request, name: str) -> RestAnswer:
        if not self._worker.values["topic.tracking.enable"]:
            raise HttpError(403, "Topic tracking is disabled.")
        topics = await self._call(lambda herder: herder.topics(name))
        return RestAnswer({name: {"topics": topics}})

    async def _reset_topics(self, _: Request, name: str) -> RestAnswer:
        values = self._worker.values
        if not values["topic.tracking.enable"]:
            raise HttpError(403, "Topic tracking is disabled.")
        if not values["topic.tracking.allow.reset"]:
            raise HttpError(403, "Topic tracking reset is disabled.")
        return RestAnswer(await self._call(lambda herder: herder.reset_topics(name)), 202)

    # ------------------------------------------------------------ offsets

    async def _offsets(self, _: Request, name: str) -> RestAnswer:
        return RestAnswer({"offsets": await asyncio.wrap_future(self._worker.offsets(name))})

    async def _alter_offsets(self, request: Request, name: str) -> RestAnswer:
        offsets = (await _object(request)).get("offsets")
        if not offsets:
            text = "Partitions / offsets need to be provided for an alter offsets request"
            raise BadRequestException(text)
        if not isinstance(offsets, list) or not all(map(_is_offset, offsets)):
            raise HttpError(500, "Offsets are a list of partition and offset")
        message = await asyncio.wrap_future(self._worker.alter_offsets(name, offsets))
        return RestAnswer({"message": message})

    async def _reset_offsets(self, _: Request, name: str) -> RestAnswer:
        message = await asyncio.wrap_future(self._worker.alter_offsets(name, None))
        return RestAnswer({"message": message})

    # ------------------------------------------------------------ plug-ins

    async def _plugins(self, request: Request) -> RestAnswer:
        everything = request.query_params.get("connectorsOnly", "true").lower() == "false"
        return RestAnswer(
            [
                {"class": it.java_class, "type": it.type, "version": it.version}
                for it in self._worker.plugins.plugins
                if everything or it.type in {"source", "sink"}
            ]
        )

    async def _plugin_config(self, _: Request, name: str) -> RestAnswer:
        return RestAnswer(await asyncio.wrap_future(self._worker.plugin_settings(name)))

    async def _validate(self, request: Request, name: str) -> RestAnswer:
        body = await _object(request)
        config = {key: _text(value) for key, value in body.items() if value is not None}
        kind = config.get("connector.class")
        if kind is not None and kind.rpartition(".")[2] != name.rpartition(".")[2]:
            text = f"Included connector type {kind} does not match request type {name}"
            raise BadRequestException(text)
        try:
            return RestAnswer(await asyncio.wrap_future(self._worker.validate(config)))
        except BadRequestException as error:
            wrapper = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException: "
            raise HttpError(500, wrapper + str(error)) from None  # as Kafka


def initial_target(text: Any) -> TargetState | None:
    """Return the target state that `initial_state` names, in letters of any case."""
    if text is None:
        return None
    target = _TARGETS.get(str(text).upper())
    if target is None:
        raise ConnectException(f"No such initial_state: {text}")
    return target


def _shape(words: list[str]) -> tuple[str, list[str]]:
    """Return the path with `*` for names, and the names."""
    variable = {"connectors": (1, 3), "connector-plugins": (1,)}.get(words[0], ()) if words else ()
    if len(words) > 3 and words[2] != "tasks":
        variable = (1,)
    shape = ["*" if index in variable else it for index, it in enumerate(words)]
    return "/".join(shape), [it for index, it in enumerate(words) if index in variable]


async def _object(request: Request) -> dict[str, Any]:
    """Return the object of a body; 415 for another type, 500, as in Kafka, for other JSON."""
    # exactly: browsers send a text or a form, whatever its parameters, for any page of the web
    media_type = request.headers.get("content-type", "").partition(";")[0]
    if media_type.strip().lower() != "application/json":
        raise HttpError(415, is_plain=True)
    try:
        parsed = json.loads(await request.body())
    except ValueError as error:
        raise HttpError(500, f"Unexpected end or character of JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise HttpError(500, "Cannot deserialize a map from this JSON")
    return parsed


def _with_name(name: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the configuration with its name; BadRequestException for two names."""
    if None in config.values():
        raise BadRequestException("Null value can not be supplied as the configuration value.")
    texts = {key: _text(it) for key, it in config.items()}
    configured = texts.setdefault("name", name)
    if configured != name:
        raise BadRequestException(
            f"Connector name configuration ({configured}) doesn't match connector name in the URL "
            f"({name})"
        )
    return texts


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _task(name: str, number: str) -> ConnectorTaskId:
    if not (number.isascii() and number.isdecimal()):
        raise HttpError(404, is_plain=True)
    return ConnectorTaskId(name, int(number))


def _location(request: Request, name: str) -> dict[str, str]:
    return {"location": f"{request.base_url}connectors/{quote(name, safe='')}"}


def _is_offset(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("partition"), dict)
        and (entry.get("offset", 0) is None or isinstance(entry.get("offset"), dict))
    )
