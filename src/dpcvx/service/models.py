"""Requests and responses of the service, for validation and for the OpenAPI description."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dpcvx.service.refusal import CODES


class RefusalBody(BaseModel):
    """A refusal: a stable code and one sentence."""

    code: Literal[tuple(CODES)]  # type: ignore[valid-type]
    message: str


class BudgetLeft(BaseModel):
    """Budget of the account, and the limits of this key."""

    epsilon: float
    delta: float
    relation: str
    remaining: float = Field(description="Epsilon, at the account's delta, left for new measurements.")
    comparisons: int = Field(
        description="Runs of comparisons with the records at the start; 0 for small data."
    )
    comparisons_left: int = Field(
        description="Runs that are left; without one there are no new measurements."
    )
    queries_per_minute: int
    queries_per_day: int
    queries_today: int
    measurements: int = Field(description="New measurements that queries of this key may cause.")
    measurements_left: int = Field(
        description="How many of them are left; later queries are answered without a comparison."
    )


class PastQueryBody(BaseModel):
    """A query of this key and its answer."""

    idempotency_key: str
    asked: float = Field(description="Seconds since 1970.")
    query: dict[str, Any]
    answer: dict[str, Any]


class History(BaseModel):
    """Queries of this key, newest first."""

    queries: list[PastQueryBody]
    more: bool = Field(description="Whether there are older ones: ask for them by older_than.")


class AnswerTable(BaseModel):
    """The table of an answer as texts."""

    title: str
    facts: list[list[str]]
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]


class KeyRecord(BaseModel):
    """Public record of an API key."""

    id: str
    name: str
    scopes: list[str]
    per_minute: int
    per_day: int
    created: int
    revoked: bool
    measurements: int | None = Field(
        description="New measurements that its queries may cause; null: half of all."
    )
    purpose: str


class KeyList(BaseModel):
    """All keys of the account."""

    keys: list[KeyRecord]


class NewKey(BaseModel):
    """Request for a new key."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")
    scopes: list[Literal["ask", "admin"]] = Field(default=["ask"], min_length=1, max_length=2)
    per_minute: int = Field(default=60, ge=1, le=1_000_000)
    per_day: int = Field(default=5000, ge=1, le=1_000_000_000)
    measurements: int | None = Field(default=None, ge=0, le=1_000_000_000)
    purpose: str = Field(default="", max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")


class CreatedKey(BaseModel):
    """A new key. Its text is shown only here."""

    key: KeyRecord
    text: str
