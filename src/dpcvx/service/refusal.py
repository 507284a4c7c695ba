"""Refusals of the service: a stable code and one sentence, from public facts alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CODES", "Refusal"]

# All codes of the service with their HTTP status. Programs may rely on both.
CODES = {
    "malformed": 422,
    "too_large": 413,
    "unauthorised": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "key_reused": 409,
    "key_dead": 409,
    "budget_spent": 409,
    "account_not_open": 409,
    "too_many_queries": 429,
    "internal": 500,
    "busy": 503,
}


@dataclass(eq=False)
class Refusal(Exception):  # noqa: N818 - the name says what happened
    """A request is refused."""

    code: str  # one of `CODES`
    message: str  # what was wrong and what to do; never anything that depends on a record
    retry_after: int | None = None  # seconds after which the same request may succeed

    @property
    def status(self) -> int:
        """HTTP status of the code."""
        return CODES[self.code]

    @property
    def body(self) -> dict[str, Any]:
        """JSON body of the response."""
        return {"code": self.code, "message": self.message}

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.code == "unauthorised":
            headers["WWW-Authenticate"] = "Bearer"
        return headers
