"""A provider of tokens on the loopback interface: keys, client credentials, assertions."""

from __future__ import annotations

import base64
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from ottla.security.sasl.jwt import JwtRules, parse_jwks, verified
from tests.security.tokens import JWKS_PATH, TOKEN_PATH, keys, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT_ID, CLIENT_SECRET = "a client", "its secret"


class Provider(ThreadingHTTPServer):
    """Counts the tokens that it gives; they last for `seconds`."""

    given = 0
    seconds = 3600

    @property
    def keys_url(self) -> str:
        """Where the keys are."""
        return f"http://127.0.0.1:{self.server_port}{JWKS_PATH}"

    @property
    def token_url(self) -> str:
        """Where tokens are."""
        return f"http://127.0.0.1:{self.server_port}{TOKEN_PATH}"

    def token(self, form: dict[str, list[str]], authorization: str | None) -> str | None:
        """Return a token for good credentials or a good assertion."""
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if form.get("grant_type") == ["client_credentials"]:
            if authorization != f"Basic {basic}":
                return None
        else:
            rules = JwtRules(audiences=("provider",))
            verified(form["assertion"][0], parse_jwks(keys()), rules, time.time())
        self.given += 1
        return signed(exp=int(time.time()) + self.seconds)


class _Answers(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        """Answer with the keys."""
        self._send(200 if self.path == JWKS_PATH else 404, keys())

    def do_POST(self) -> None:
        """Answer with a token."""
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        token = self.server.token(form, self.headers["Authorization"])
        if token is None:
            self._send(401, b'{"error": "invalid_client"}')
            return
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
        self._send(200, json.dumps(answer).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_values: Any) -> None:  # noqa: A002 - the base's name
        """Print nothing."""


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Serve for as long as the block lasts."""
    server = Provider(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
