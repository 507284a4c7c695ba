"""Log of the service as JSON lines: id, route, status and cause of each request; no query, answer or key."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

__all__ = ["FIELDS", "JsonLines", "write_json_lines"]

# Facts of a request that a line may hold, by the names of the record's attributes.
FIELDS = ("request", "method", "route", "status", "code", "milliseconds", "key")


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON; the text of an exception is left out, since it may hold data."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in FIELDS if getattr(record, name, None) is not None}
        return json.dumps(line, ensure_ascii=False)


def write_json_lines() -> None:
    """Write every request and every problem of the service to standard error."""
    log = logging.getLogger("dpcvx.service")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
