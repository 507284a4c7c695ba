"""The outermost layer of the service: limits on requests, headers of responses, log, unexpected errors.

Every response has the same headers, and the id of its request. A body that is too long is refused before it
is read to the end. An unexpected error becomes one opaque answer; its text, which could hold data, is written
nowhere.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from dpcvx.service.metrics import Metrics
from dpcvx.service.refusal import Refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BODY_LIMIT", "Boundary"]

BODY_LIMIT = 64 * 1024  # bytes; the longest useful query takes a few thousand
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
INTERNAL = Refusal(
    "internal",
    "The server failed. Tell the data owner the time, or the X-Request-Id of this response. A retry must use "
    "the same Idempotency-Key.",
)
REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
OTHER = "other"  # one name for all paths that are no route, so that requests cannot make the metrics grow

log = logging.getLogger("dpcvx.service")


class Boundary:
    """ASGI middleware around the whole service.

    `app`: the service; `metrics`: counts responses.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        taken, began, request = 0, time.perf_counter(), _request_id(scope)

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > BODY_LIMIT:
                raise TOO_LARGE
            return message

        async def stamped(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                shown = {**HEADERS, "X-Request-Id": request}
                own = [(name.lower().encode(), value.encode()) for name, value in shown.items()]
                kept = [pair for pair in message.get("headers", []) if pair[0].lower() not in dict(own)]
                message["headers"] = [*kept, *own]
                self._record(scope, request, message["status"], time.perf_counter() - began)
            await send(message)

        try:
            await self.app(scope, limited, stamped)
        except ClientDisconnect:
            return  # in the middle of its request: nobody is left to answer
        except Exception as error:
            refusal = error if isinstance(error, Refusal) else INTERNAL
            if refusal is INTERNAL:
                log.error("%s", place(error), extra={"request": request})
            if not started:
                scope["refusal"] = refusal.code
                await _refuse(refusal, stamped)

    def _record(self, scope: Scope, request: str, status: int, seconds: float) -> None:
        """Count a response and write it to the log."""
        route, code = getattr(scope.get("route"), "path", OTHER), scope.get("refusal")
        self.metrics.count(route, status, seconds, code)
        facts = {"request": request, "method": scope["method"], "route": route, "status": status}
        facts |= {"code": code, "milliseconds": round(1000 * seconds), "key": scope.get("api_key")}
        log.info("request", extra=facts)


def _request_id(scope: Scope) -> str:
    """Return the id that a proxy gave the request, or a new one."""
    given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
    return given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


TOO_LARGE = Refusal("too_large", f"A request may be at most {BODY_LIMIT} bytes long.")


def place(error: BaseException) -> str:
    """Return type and place of an error, without its text."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"unexpected {type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"


async def _refuse(refusal: Refusal, send: Send) -> None:
    body = json.dumps(refusal.body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
