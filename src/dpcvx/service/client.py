"""Client of the query service; it repeats a request after a failure without being charged twice."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dpcvx.errors import DpcvxError, NotInstalled, WrongType, WrongValue
from dpcvx.whole_files import replace_file

if TYPE_CHECKING:
    import httpx

    from dpcvx.queries import Answer, Query, Schema

__all__ = ["Client", "ServiceError"]

API = "/api/v1"
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before each further try
NOBODY = 5.0  # seconds after which a refused connection means that no service runs there
LONGEST_WAIT = 60.0  # seconds; a limit that lasts longer is reported
DERIVED = {
    "labels",
    "known",
    "often_missing",
}  # of an attribute, which the service computes from its declaration
PASSING = {429, 502, 503, 504}  # temporary statuses


class ServiceError(DpcvxError):
    """The service refused a request, or could not be reached.

    Attributes
    ----------
    code : str
        Stable code, such as "budget_spent"; "unreachable" when there was no response.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # both in args, so that the error can be pickled
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class Client:
    """Connection of an analyst to a query service.

    Parameters
    ----------
    url : str
        Address of the service, such as "https://statistics.example".
    key : str
        API key.
    timeout : float
        Seconds to wait for a response before the request is repeated.

    Examples
    --------
    >>> client = dpcvx.Client("http://127.0.0.1:8000", key)              # doctest: +SKIP
    >>> print(client.ask(dpcvx.Regression("income", ("age", "sex"))))    # doctest: +SKIP
    """

    def __init__(self, url: str, key: str, *, timeout: float = 120.0) -> None:
        try:
            import httpx
        except ImportError as missing:
            raise NotInstalled('The client needs httpx: run  pip install "dpcvx[serve]"') from missing
        if not url.startswith(("http://", "https://")):
            raise WrongValue(f"url must start with http:// or https://, got {url!r}.")
        headers = {"Authorization": f"Bearer {key.strip()}"}
        patience = httpx.Timeout(timeout, connect=min(timeout, NOBODY))
        self._http = httpx.Client(base_url=url.rstrip("/") + API, headers=headers, timeout=patience)
        address = self._http.base_url
        self._where = f"{address.host} port {address.port or (443 if address.scheme == 'https' else 80)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def ask(self, query: Query | Mapping[str, Any], *, key: str | None = None) -> Answer:
        """Ask a query; a lost response is fetched again and not charged again.

        Parameters
        ----------
        query : Query or mapping
            A query, or its JSON form.
        key : str, optional
            Idempotency key, to repeat a query after this process has ended; a new one by default.

        Returns
        -------
        Answer
        """
        from dpcvx.queries import Answer

        if not isinstance(query, Mapping) and not hasattr(query, "to_json"):
            raise WrongType(
                f"query is a {type(query).__name__}; it must be a Regression, Count, Mean or Marginal, or a "
                "dict that query_from_json reads."
            )
        content = query if isinstance(query, Mapping) else query.to_json()
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        return Answer.from_json(self._request("POST", "/queries", json=content, headers=headers).json())

    def answer(self, key: str) -> Answer:
        """Return an answer that this API key was given before, by its idempotency key; it costs nothing."""
        from dpcvx.queries import Answer

        return Answer.from_json(self._request("GET", f"/answers/{key}").json())

    def schema(self) -> Schema:
        """Return the public schema of the data."""
        from dpcvx.queries import Schema

        listed = self._request("GET", "/schema").json()["attributes"]
        declared = [{name: value for name, value in one.items() if name not in DERIVED} for one in listed]
        return Schema.from_dict({"attributes": declared})

    def budget(self) -> dict[str, Any]:
        """Return the budget of the account, the part that is left, and the limits of this key."""
        content: dict[str, Any] = self._request("GET", "/budget").json()
        return content

    def history(
        self, limit: int = 100, *, older_than: str | None = None, search: str = ""
    ) -> list[dict[str, Any]]:
        """Return this key's queries and answers, newest first.

        Parameters
        ----------
        limit : int
            Most queries to return, up to 1000.
        older_than : str, optional
            The ``idempotency_key`` of the last query of an earlier list, to continue from there.
        search : str
            Words that all stand in the JSON of a query, such as names of attributes.
        """
        params = {"limit": limit, "search": search} | ({"older_than": older_than} if older_than else {})
        content = self._request("GET", "/history", params=params).json()
        queries: list[dict[str, Any]] = content["queries"]
        return queries

    def statement(self) -> dict[str, Any]:
        """Return the privacy statement of all answers."""
        content: dict[str, Any] = self._request("GET", "/statement").json()
        return content

    def synthetic(self, rows: int, path: str | Path) -> None:
        """Write synthetic records to a file, and the privacy statement beside it as NAME.privacy.json.

        Parameters
        ----------
        rows : int
            Number of records.
        path : str or Path
            Ends in .csv or .parquet.
        """
        path = Path(path)
        kind = path.suffix.removeprefix(".")
        if kind not in ("csv", "parquet"):
            raise WrongValue(f"{path} must end in .csv or .parquet, to say what it is.")
        from dpcvx.queries import statement_path

        response = self._request("GET", "/synthetic", params={"rows": rows, "format": kind})
        promise = json.dumps(self.statement(), indent=2)
        # The statement is written first, so that no table exists without one.
        replace_file(statement_path(path), lambda part: part.write_text(promise, encoding="utf-8"))
        replace_file(path, lambda part: part.write_bytes(response.content))

    def _request(self, method: str, path: str, **content: Any) -> httpx.Response:
        import httpx

        waited = 0.0
        for pause in (*PAUSES, None):
            started = time.monotonic()
            try:
                response = self._http.request(method, path, **content)
            except httpx.TransportError as error:
                waited += time.monotonic() - started
                nobody = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if pause is None or (nobody and waited + pause > NOBODY):
                    why = f"{type(error).__name__}. Is the service running there?"
                    raise ServiceError("unreachable", f"No response from {self._where}: {why}") from None
                time.sleep(pause)
                waited += pause
                continue
            if response.is_success:
                return response
            wait = float(response.headers.get("Retry-After", 0))
            if response.status_code not in PASSING or pause is None or wait > LONGEST_WAIT:
                break
            time.sleep(max(pause, wait))
        raise _error(response)


def _error(response: httpx.Response) -> ServiceError:
    try:
        content = response.json()
        code, message = str(content["code"]), str(content["message"])
        if code == "unauthorised":  # the message of the service is about HTTP headers
            message = "The service does not know this API key, or it was revoked."
        return ServiceError(code, message)
    except (ValueError, KeyError, TypeError):
        return ServiceError("unexpected", f"The server answered with status {response.status_code}.")
