"""The query service as an ASGI application: routes, and nothing else.

It holds neither mathematics nor privacy logic. Questions go to the engine one at a time, in a thread of their
own, so that the loop which talks to analysts never waits for one.
"""

import asyncio
import json
import math
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, FastAPI, Header, Query, Request, Security
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from dpcvx import __version__
from dpcvx.service.analysts import Analysts
from dpcvx.service.boundary import Boundary, Metrics
from dpcvx.service.keys import ApiKey
from dpcvx.service.models import (
    BudgetLeft,
    CreatedKey,
    History,
    KeyList,
    KeyRecord,
    NewKey,
    RefusalBody,
)
from dpcvx.service.refusal import CODES, Refusal

__all__ = ["application"]

API = "/api/v1"
WEB = Path(__file__).parent / "web"
PAGES = (
    ("/", "index.html", "text/html"),
    ("/style.css", "style.css", "text/css"),
    ("/page.js", "page.js", "text/javascript"),
)
MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
WAITING = 8  # requests of one key that may wait for the engine at the same time
VERIFIERS = 2  # Argon2 verifications at the same time; each takes 19 MiB and a core

Result = TypeVar("Result")
Bearer = Annotated[
    HTTPAuthorizationCredentials | None, Security(HTTPBearer(auto_error=False, description="An API key."))
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Chosen by the analyst, new for each question. A retry with the same key gets the same "
        "bytes and is charged once.",
    ),
]


def application(analysts: Analysts, *, slot: float = 0.25) -> FastAPI:
    """Return the service as an ASGI application.

    Parameters
    ----------
    analysts : Analysts
        Who answers.
    slot : float
        Seconds; answers leave a whole number of slots after their question came.

    Returns
    -------
    FastAPI
    """
    metrics = Metrics()
    one_at_a_time = ThreadPoolExecutor(1, "engine")
    verifiers = ThreadPoolExecutor(VERIFIERS, "keys")
    waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        one_at_a_time.shutdown()  # a question that is being answered is answered to the end
        verifiers.shutdown()

    app = FastAPI(
        title="dpcvx query service",
        version=__version__,
        description="Regressions and tables of a sensitive data set, on one privacy budget.",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Boundary, metrics=metrics)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _not_served)

    async def in_turn(key: ApiKey, work: Callable[..., Result], *arguments: Any) -> Result:
        if waiting[key.id] >= WAITING:
            raise Refusal(
                "too_many_questions",
                f"{WAITING} requests of this key are waiting: let one end.",
                retry_after=1,
            )
        waiting[key.id] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(one_at_a_time, work, *arguments)
        finally:
            waiting[key.id] -= 1

    async def caller(bearer: Bearer) -> ApiKey:
        loop = asyncio.get_running_loop()
        text = "" if bearer is None else bearer.credentials
        key = await loop.run_in_executor(verifiers, analysts.keys.verify, text)
        if key is None:
            raise Refusal("unauthorised", "Send a valid API key: Authorization: Bearer <key>.")
        return key

    def scoped(scope: str) -> Callable[[ApiKey], ApiKey]:
        def check(key: Annotated[ApiKey, Security(caller)]) -> ApiKey:
            if scope not in key.scopes:
                raise Refusal("forbidden", f"This key lacks the scope {scope!r}.")
            return key

        return check

    AnyKey = Annotated[ApiKey, Security(caller)]
    AskKey = Annotated[ApiKey, Security(scoped("ask"))]
    AdminKey = Annotated[ApiKey, Security(scoped("admin"))]
    api = APIRouter(prefix=API, responses=_problems("unauthorised", "malformed", "too_large"))

    @api.get("/schema", response_model=dict[str, Any])
    async def schema(_: AnyKey) -> Response:
        """Attributes of the data, their levels and bins: the public declaration."""
        return JSONResponse(analysts.schema)

    @api.post(
        "/queries",
        response_model=dict[str, Any],
        responses=_problems("forbidden", "key_reused", "too_many_questions"),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": analysts.question_schema}},
            }
        },
    )
    async def queries(request: Request, key: AskKey, idempotency_key: IdempotencyKey = None) -> Response:
        """Ask a question; the answer has the same shape and length whichever way it was found."""
        started = asyncio.get_running_loop().time()
        query = analysts.question(await request.body())
        try:
            body = await in_turn(key, analysts.ask, key, idempotency_key or secrets.token_hex(16), query)
        finally:
            await _next_slot(started, slot)
        return Response(body, media_type="application/json")

    @api.get("/history", response_model=History, responses=_problems("forbidden"))
    async def history(key: AskKey, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Any:
        """This key's own questions and answers, newest first."""
        asked = await asyncio.to_thread(analysts.history.latest, key, limit)
        return {
            "questions": [
                {
                    "idempotency_key": one.idempotency,
                    "asked": one.asked,
                    "question": json.loads(one.question),
                    "answer": json.loads(one.answer),
                }
                for one in asked
            ]
        }

    @api.get("/budget", response_model=BudgetLeft, responses=_problems("too_many_questions"))
    async def budget(key: AnyKey) -> Any:
        """The cap of the account, what is left of it, and what this key may still ask."""
        return await in_turn(key, analysts.budget, key)

    @api.get(
        "/synthetic",
        response_class=Response,
        responses={
            200: {
                "content": {name.split(";")[0]: {} for name in MEDIA.values()},
                "description": "The table.",
            },
            **_problems("forbidden", "too_many_questions"),
        },
    )
    async def synthetic(
        key: AskKey,
        rows: Annotated[int, Query(ge=1, le=1_000_000)] = 10_000,
        format: Literal["csv", "parquet"] = "csv",
    ) -> Response:
        """Invented records that follow the public histogram; they cost nothing, however many."""
        body = await in_turn(key, analysts.synthetic, rows, format)
        headers = {
            "Content-Disposition": f'attachment; filename="synthetic.{format}"',
            "Link": f'<{API}/statement>; rel="describedby"',
        }
        return Response(body, media_type=MEDIA[format], headers=headers)

    @api.get("/statement", response_model=dict[str, Any], responses=_problems("too_many_questions"))
    async def statement(key: AnyKey) -> Response:
        """What is promised about everything that this service has answered and will answer."""
        return JSONResponse(await in_turn(key, analysts.statement))

    @api.get("/keys", response_model=KeyList, responses=_problems("forbidden"))
    async def keys(_: AdminKey) -> Any:
        """Every API key, without its secret."""
        return {"keys": [asdict(key) for key in await asyncio.to_thread(analysts.keys.list)]}

    @api.post(
        "/keys",
        status_code=201,
        response_model=CreatedKey,
        responses=_problems("forbidden"),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": NewKey.model_json_schema()}},
            }
        },
    )
    async def create_key(request: Request, _: AdminKey) -> Any:
        """Make an API key; its text is in this response and nowhere else."""
        try:
            wanted = NewKey.model_validate_json(await request.body())
            key, text = await asyncio.to_thread(lambda: analysts.keys.create(**wanted.model_dump()))
        except ValidationError as error:
            raise Refusal("malformed", _first(error.errors(include_input=False))) from None
        except ValueError as error:
            raise Refusal("malformed", str(error)) from None
        return {"key": asdict(key), "text": text}

    @api.delete("/keys/{id}", response_model=KeyRecord, responses=_problems("forbidden", "not_found"))
    async def revoke_key(id: Annotated[str, PathParameter(pattern="^[0-9a-f]{12}$")], _: AdminKey) -> Any:
        """Refuse an API key from now on."""
        try:
            return asdict(await asyncio.to_thread(analysts.keys.revoke, id))
        except KeyError:
            raise Refusal("not_found", "There is no key of this id.") from None

    @api.get("/openapi.json", include_in_schema=False)
    async def openapi(_: AnyKey) -> Response:
        return JSONResponse(app.openapi())

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", include_in_schema=False)
    async def counts() -> Response:
        return PlainTextResponse(metrics.text())

    app.include_router(api)
    for path, name, media in PAGES:
        app.add_api_route(path, _page(name, media), include_in_schema=False)
    return app


def _page(name: str, media: str) -> Callable[[], Awaitable[Response]]:
    content = (WEB / name).read_bytes()

    async def page() -> Response:
        return Response(content, media_type=media)

    return page


def _problems(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Refusals of a route, for its description."""
    return {
        CODES[code]: {"model": RefusalBody, "description": code.replace("_", " ").capitalize()}
        for code in codes
    }


async def _next_slot(started: float, slot: float) -> None:
    """Wait until a whole number of slots has passed since a request came."""
    elapsed = asyncio.get_running_loop().time() - started
    await asyncio.sleep(math.ceil(elapsed / slot) * slot - elapsed)


async def _refused(_: Request, error: Exception) -> Response:
    refusal = error if isinstance(error, Refusal) else Refusal("internal", "")
    return JSONResponse(refusal.body, refusal.status, refusal.headers)


async def _malformed(request: Request, error: Exception) -> Response:
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    return await _refused(request, Refusal("malformed", _first(problems)))


async def _not_served(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = {404: ("not_found", "There is nothing here."), 405: ("method_not_allowed", "Use another method.")}
    code, message = words.get(status, ("malformed", "The request could not be read."))
    response = await _refused(request, Refusal(code, message))
    response.headers.update(getattr(error, "headers", None) or {})
    return response


def _first(problems: Any) -> str:
    """Where a request is wrong and what is needed there; what was sent is not repeated."""
    for problem in problems:
        return f"{' '.join(str(part) for part in problem['loc'])}: {problem['msg']}."
    return "The request could not be read."
