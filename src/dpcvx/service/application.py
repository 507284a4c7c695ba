"""The query service as an ASGI application.

One router for each noun of the interface: the data, queries, API keys, and the server itself. None of them
holds mathematics or privacy logic. Queries go to the engine one at a time, in a thread of their own, so that
the event loop never waits for one.
"""

import asyncio
import json
import math
import secrets
import time
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
from dpcvx.service.answer_files import FILES, answer_file, shown_table
from dpcvx.service.boundary import Boundary
from dpcvx.service.keys import ApiKey
from dpcvx.service.metrics import Metrics
from dpcvx.service.models import (
    AnswerTable,
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
    ("/interface", "interface.html", "text/html"),
    ("/interface.js", "interface.js", "text/javascript"),
    ("/favicon.ico", "icon.svg", "image/svg+xml"),
)
MEDIA = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "zip": "application/zip",  # the CSV file with its privacy statement
}
# Requests of one key, and of all keys, that may wait for the engine at the same time.
WAITING, WAITING_OF_ALL = 8, 256
READY_SECONDS = 5.0  # how long the result of a check of the ledger is used again
# Argon2 verifications of keys that were not accepted before: one at a time, which takes 19 MiB and a core, so
# that wrong keys leave the other cores to the service. So many may wait, in all and from one address.
CHECKING, CHECKING_OF_ONE = 64, 8
PAUSE = 2.0  # rest after a wrong key, in times of its verification: wrong keys take a third of a core at most
REFUSED_SLOTS = 4  # fewest slots from a request to the refusal of its key: the next wrong one comes later

Result = TypeVar("Result")
Bearer = Annotated[
    HTTPAuthorizationCredentials | None, Security(HTTPBearer(auto_error=False, description="An API key."))
]
IDEMPOTENCY = r"^[A-Za-z0-9_.-]{1,64}$"
PastKey = Annotated[str, PathParameter(pattern=IDEMPOTENCY, description="Its Idempotency-Key.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=IDEMPOTENCY,
        description="Chosen by the analyst, new for each query. A retry with the same key gets the same "
        "bytes and is charged once.",
    ),
]


def application(analysts: Analysts, *, slot: float = 0.25) -> FastAPI:
    """Return the service as an ASGI application.

    `analysts`: keys, history and engine. `slot`: seconds. The time from a query to its answer is a whole
    number of slots. The work of an answer takes a public number of steps; slots hide what caches add.
    """
    state = ServiceState(analysts, slot)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        state.close()

    app = FastAPI(
        title="dpcvx query service",
        version=__version__,
        description="Regressions and tables of a sensitive data set, on one privacy budget.",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = state
    app.add_middleware(Boundary, metrics=state.metrics)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _not_served)
    for router in (_data_router(), _query_router(analysts.query_schema), _key_router(), _server_router()):
        app.include_router(router)
    return app


class ServiceState:
    """State of a running server: one thread for the engine, a few for keys, and requests that wait.

    `slot`: seconds.
    """

    def __init__(self, analysts: Analysts, slot: float) -> None:
        self.analysts, self.slot, self.metrics = analysts, slot, Metrics()
        self._engine = ThreadPoolExecutor(1, "engine")
        self._verifier = ThreadPoolExecutor(1, "keys")
        self._waiting: Counter[str] = Counter()
        self._checking: Counter[str] = Counter()
        self._checked_alone, self._check_again = asyncio.Lock(), -math.inf
        self._readiness: dict[str, str] = {}

    def close(self) -> None:
        """Stop the threads; a query that has begun is answered first."""
        self._engine.shutdown()
        self._verifier.shutdown()

    async def in_turn(self, key: ApiKey, work: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in the thread of the engine, after the requests that came before."""
        if self._waiting[key.id] >= WAITING:
            raise Refusal(
                "too_many_queries", f"{WAITING} requests of this key are waiting: let one end.", retry_after=1
            )
        if self._waiting.total() >= WAITING_OF_ALL:
            raise Refusal("busy", "Too many requests are waiting: try again in a second.", retry_after=1)
        self._waiting[key.id] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._engine, work, *arguments)
        finally:
            self._waiting[key.id] -= 1
            self._waiting = +self._waiting  # forgets keys that wait no longer

    async def readiness(self) -> dict[str, str]:
        """Return what is checked before requests are sent here, "ok" or what is wrong; a few seconds old."""
        async with self._checked_alone:
            now = asyncio.get_running_loop().time()
            if now >= self._check_again:
                self._readiness = await asyncio.to_thread(self.analysts.check)
                self._check_again = now + READY_SECONDS
        return self._readiness

    async def gauges(self) -> dict[str, tuple[str, float]]:
        """Return the values of the moment for the metrics."""
        return {
            "dpcvx_waiting_requests": ("Requests that wait for the engine.", self._waiting.total()),
            "dpcvx_waiting_keys": ("Unknown keys that wait for verification.", self._checking.total()),
            **await asyncio.to_thread(self.analysts.gauges),
        }

    async def verify(self, text: str, source: str) -> ApiKey:
        """Return the API key of a text, or refuse it after a whole number of slots, `REFUSED_SLOTS` at least.

        A key that was accepted before is not queued. `source`: address that the request came from.
        """
        keys, started = self.analysts.keys, asyncio.get_running_loop().time()
        key = await asyncio.to_thread(keys.recognise, text) if keys.was_accepted(text) else None
        if key is not None:
            return key
        try:
            key = await self._check(text, source)
            if key is None:
                raise Refusal("unauthorised", "Send a valid API key: Authorization: Bearer <key>.")
        except Refusal:
            await self.next_slot(started, REFUSED_SLOTS)
            raise
        return key

    async def _check(self, text: str, source: str) -> ApiKey | None:
        """Verify a key that was not accepted before, after those that wait for it."""
        if self._checking[source] >= CHECKING_OF_ONE or self._checking.total() >= CHECKING:
            raise Refusal(
                "busy", "Too many unknown API keys are being checked: try again in a second.", retry_after=1
            )
        self._checking[source] += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._verifier, self._verify, text)
        finally:
            self._checking[source] -= 1
            self._checking = +self._checking  # forgets addresses that wait no longer

    def _verify(self, text: str) -> ApiKey | None:
        """Verify a key by Argon2, and rest after a wrong one, so that good keys find the cores free."""
        started = time.perf_counter()
        key = self.analysts.keys.verify(text)
        if key is None:
            time.sleep(PAUSE * (time.perf_counter() - started))
        return key

    async def next_slot(self, started: float, least: int = 1) -> None:
        """Wait until a whole number of slots has passed since a request came, and at least so many."""
        elapsed = asyncio.get_running_loop().time() - started
        await asyncio.sleep(max(least, math.ceil(elapsed / self.slot)) * self.slot - elapsed)


def _state(request: Request) -> ServiceState:
    state: ServiceState = request.app.state.service
    return state


async def _caller(request: Request, bearer: Bearer) -> ApiKey:
    source = "" if request.client is None else request.client.host
    key = await _state(request).verify("" if bearer is None else bearer.credentials, source)
    request.scope["api_key"] = key.id  # for the log
    return key


def _scoped(scope: str) -> Callable[[ApiKey], ApiKey]:
    def check(key: Annotated[ApiKey, Security(_caller)]) -> ApiKey:
        if scope not in key.scopes:
            raise Refusal("forbidden", f"This key lacks the scope {scope!r}.")
        return key

    return check


AnyKey = Annotated[ApiKey, Security(_caller)]
AskKey = Annotated[ApiKey, Security(_scoped("ask"))]
AdminKey = Annotated[ApiKey, Security(_scoped("admin"))]


def _refusals(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the refusals of a route, for the OpenAPI description."""
    return {
        CODES[code]: {"model": RefusalBody, "description": code.replace("_", " ").capitalize()}
        for code in codes
    }


def _router() -> APIRouter:
    return APIRouter(prefix=API, responses=_refusals("unauthorised", "malformed", "too_large", "busy"))


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    """Describe the JSON body of a route that reads it by itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _data_router() -> APIRouter:
    """Routes about the data: schema, budget, privacy statement, synthetic records."""
    api = _router()

    @api.get("/schema", response_model=dict[str, Any])
    async def schema(request: Request, _: AnyKey) -> Response:
        """Attributes of the data with their levels and bins, as declared in public."""
        return JSONResponse(_state(request).analysts.schema)

    @api.get("/budget", response_model=BudgetLeft, responses=_refusals("too_many_queries"))
    async def budget(request: Request, key: AnyKey) -> Any:
        """The budget of the account, the part that is left, and the limits of this key."""
        state = _state(request)
        return await state.in_turn(key, state.analysts.budget, key)

    @api.get("/statement", response_model=dict[str, Any], responses=_refusals("too_many_queries"))
    async def statement(request: Request, key: AnyKey) -> Response:
        """The privacy statement of all answers of this service, past and future."""
        state = _state(request)
        return JSONResponse(await state.in_turn(key, state.analysts.statement))

    @api.get(
        "/synthetic",
        response_class=Response,
        responses={
            200: {
                "content": {name.split(";")[0]: {} for name in MEDIA.values()},
                "description": "The table.",
            },
            **_refusals("forbidden", "too_many_queries"),
        },
    )
    async def synthetic(
        request: Request,
        key: AskKey,
        rows: Annotated[int, Query(ge=1, le=1_000_000)] = 10_000,
        format: Literal["csv", "parquet", "zip"] = "csv",
    ) -> Response:
        """Synthetic records drawn from the public histogram or the released tables; they use no budget.

        Parquet holds the privacy statement too, and zip is the CSV file with the statement beside it.
        """
        state = _state(request)
        body = await state.in_turn(key, state.analysts.synthetic, rows, format)
        headers = {
            "Content-Disposition": f'attachment; filename="synthetic.{format}"',
            "Link": f'<{API}/statement>; rel="describedby"',
        }
        return Response(body, media_type=MEDIA[format], headers=headers)

    return api


def _query_router(query_schema: dict[str, Any]) -> APIRouter:
    """Routes of queries and their history."""
    api = _router()

    @api.post(
        "/queries",
        response_model=dict[str, Any],
        responses=_refusals("forbidden", "key_reused", "too_many_queries"),
        openapi_extra=_body(query_schema),
    )
    async def queries(request: Request, key: AskKey, idempotency_key: IdempotencyKey = None) -> Response:
        """Answer a query. The shape and length of the answer do not depend on how it was found."""
        state, started = _state(request), asyncio.get_running_loop().time()
        query = state.analysts.read(await request.body())
        idempotency = idempotency_key or secrets.token_hex(16)
        try:
            body = await state.in_turn(key, state.analysts.ask, key, idempotency, query)
        finally:
            await state.next_slot(started)
        return Response(body, media_type="application/json")

    @api.get(
        "/answers/{idempotency_key}",
        response_class=Response,
        responses={
            200: {
                "content": {name.split(";")[0]: {} for name in FILES.values()},
                "description": "The answer.",
            },
            **_refusals("forbidden", "not_found"),
        },
    )
    async def past_answer(
        request: Request,
        key: AskKey,
        idempotency_key: PastKey,
        format: Literal["json", "csv", "parquet"] = "json",
        population: bool | None = None,
    ) -> Response:
        """An answer that this key was given before, as a file. It costs nothing."""
        answer = await asyncio.to_thread(_state(request).analysts.past, key, idempotency_key)
        content = await asyncio.to_thread(answer_file, answer, format, population)
        headers = {"Content-Disposition": f'attachment; filename="answer.{format}"'}
        return Response(content, media_type=FILES[format], headers=headers)

    @api.get(
        "/answers/{idempotency_key}/table",
        response_model=AnswerTable,
        responses=_refusals("forbidden", "not_found"),
    )
    async def past_table(
        request: Request,
        key: AskKey,
        idempotency_key: PastKey,
        population: bool | None = None,
        beside: Annotated[
            str | None, Query(pattern=IDEMPOTENCY, description="Another answer, to compare it with.")
        ] = None,
    ) -> Any:
        """The table of an answer in words, as Python and the command line print it."""
        past = _state(request).analysts.past
        answer = await asyncio.to_thread(past, key, idempotency_key)
        if beside is None:
            return shown_table(answer.summary(population))
        return shown_table(answer.compare(await asyncio.to_thread(past, key, beside), population))

    @api.get("/history", response_model=History, responses=_refusals("forbidden"))
    async def history(
        request: Request,
        key: AskKey,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        older_than: Annotated[
            str | None, Query(pattern=IDEMPOTENCY, description="The last Idempotency-Key of the page before.")
        ] = None,
        search: Annotated[
            str, Query(max_length=200, description="Words that all stand in the query, such as a name.")
        ] = "",
    ) -> Any:
        """Queries of this key with their answers, newest first."""
        latest = _state(request).analysts.history.latest
        words = [json.dumps(word)[1:-1] for word in search.split()]  # as they are stored
        past = await asyncio.to_thread(latest, key, limit + 1, older_than=older_than, words=words)
        more, past = len(past) > limit, past[:limit]
        return {
            "more": more,
            "queries": [
                {
                    "idempotency_key": one.idempotency,
                    "asked": one.asked,
                    "query": json.loads(one.query),
                    "answer": json.loads(one.answer),
                }
                for one in past
            ],
        }

    return api


def _key_router() -> APIRouter:
    """Routes of API keys, for administrators."""
    api = _router()

    @api.get("/keys", response_model=KeyList, responses=_refusals("forbidden"))
    async def keys(request: Request, _: AdminKey) -> Any:
        """All API keys, without their secrets."""
        return {"keys": [asdict(key) for key in await asyncio.to_thread(_state(request).analysts.keys.list)]}

    @api.post(
        "/keys",
        status_code=201,
        response_model=CreatedKey,
        responses=_refusals("forbidden"),
        openapi_extra=_body(NewKey.model_json_schema()),
    )
    async def create_key(request: Request, _: AdminKey) -> Any:
        """Create an API key. Its text is in this response and is stored nowhere."""
        create = _state(request).analysts.keys.create
        try:
            wanted = NewKey.model_validate_json(await request.body())
            key, text = await asyncio.to_thread(lambda: create(**wanted.model_dump()))
        except ValidationError as error:
            raise Refusal("malformed", _first(error.errors(include_input=False))) from None
        except ValueError as error:
            raise Refusal("malformed", str(error)) from None
        return {"key": asdict(key), "text": text}

    @api.delete("/keys/{id}", response_model=KeyRecord, responses=_refusals("forbidden", "not_found"))
    async def revoke_key(
        request: Request, id: Annotated[str, PathParameter(pattern="^[0-9a-f]{12}$")], _: AdminKey
    ) -> Any:
        """Revoke an API key at once."""
        try:
            return asdict(await asyncio.to_thread(_state(request).analysts.keys.revoke, id))
        except KeyError:
            raise Refusal("not_found", "There is no key of this id.") from None

    return api


def _server_router() -> APIRouter:
    """Routes about the server itself: its OpenAPI description, health, metrics and web page."""
    server = APIRouter(include_in_schema=False)

    @server.get(f"{API}/openapi.json")
    async def openapi(request: Request, _: AnyKey) -> Response:
        return JSONResponse(request.app.openapi())

    @server.get("/healthz")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @server.get("/metrics")
    async def metrics(request: Request) -> Response:
        state = _state(request)
        return PlainTextResponse(state.metrics.text(await state.gauges()))

    @server.get("/readyz")
    async def readyz(request: Request) -> Response:
        found = await _state(request).readiness()
        ready = all(word == "ok" for word in found.values())
        words = {"status": "ready" if ready else "not ready", **found}
        return JSONResponse(words, 200 if ready else 503)

    for path, name, media in PAGES:
        server.add_api_route(path, _page(name, media))
    return server


def _page(name: str, media: str) -> Callable[[], Awaitable[Response]]:
    content = (WEB / name).read_bytes()

    async def page() -> Response:
        return Response(content, media_type=media)

    return page


async def _refused(request: Request, error: Exception) -> Response:
    refusal = error if isinstance(error, Refusal) else Refusal("internal", "")
    request.scope["refusal"] = refusal.code
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
    """Say where a request is wrong and what is needed there, without repeating the request."""
    for problem in problems:
        return f"{' '.join(str(part) for part in problem['loc'])}: {problem['msg']}."
    return "The request could not be read."
