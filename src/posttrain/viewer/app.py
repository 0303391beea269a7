"""The viewer's web application: routes, the key, and allowed hosts.

Only the viewer's own style and script run in its pages: text that a model wrote is escaped. Only requests for the
address that the viewer was opened at are answered, which protects against DNS rebinding by other sites. A viewer that
other machines can reach requires a key with the first request.

Pages are read-only, but for labels and notes of one's own. A form that writes them has a token that only pages of this
process have, and what another site sends is refused by its origin as well.
"""

import hmac
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from jinja2 import Environment, FunctionLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from posttrain.errors import PosttrainError, UserError
from posttrain.runs.amounts import duration, percent
from posttrain.runs.journal import plain
from posttrain.runs.readings import number
from posttrain.runs.report import shortened, visible
from posttrain.viewer import finding, pages
from posttrain.viewer.curriculum import curriculum, pairs
from posttrain.viewer.heldout import ORDERS as HELDOUT_ORDERS
from posttrain.viewer.heldout import heldout
from posttrain.viewer.library import Library
from posttrain.viewer.notes import Notes, Rollout
from posttrain.viewer.overlay import overlay
from posttrain.viewer.pages import NotThere
from posttrain.viewer.picks import ORDERS as CHOICE_ORDERS
from posttrain.viewer.search import ORDERS, Wanted
from posttrain.viewer.triage import NOTED, REASONS

log = logging.getLogger("posttrain.viewer")

OWN_NAMES = ("localhost", "127.0.0.1", "::1", "[::1]")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; img-src data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none a browser gives the origin of the viewer's own forms as null
    "Cache-Control": "no-store",
}
COOKIE = "posttrain_key"
MOST_POSTED = 100_000
"""Bytes of a form."""


class Viewer:
    """The pages of a library of runs."""

    def __init__(self, library: Library, *, key: str = "", hosts: tuple[str, ...] = OWN_NAMES) -> None:
        """`key`, unless empty, is required in a browser's first request; `hosts` are the allowed host names."""
        self._library = library
        self._key = key.encode()
        self._token = secrets.token_urlsafe(24)
        self._hosts = hosts
        self._failed: set[type[Exception]] = set()

    def app(self) -> Starlette:
        """The ASGI application."""
        pages_by_path: dict[str, Callable[[Request], Response]] = {
            "/": self._runs,
            "/compare": self._compare,
            "/curves": self._curves,
            "/runs/{run}": self._run,
            "/runs/{run}/position": self._position,
            "/runs/{run}/steps/{step:int}": self._step,
            "/runs/{run}/steps/{step:int}/groups/{group:int}": self._group,
            "/runs/{run}/search": self._search,
            "/runs/{run}/export": self._export,
            "/runs/{run}/queue": self._queue,
            "/runs/{run}/heldout": self._heldout,
            "/runs/{run}/curriculum": self._curriculum,
            "/runs/{run}/pairs": self._pairs,
            "/runs/{run}/solved": self._solved,
            "/runs/{run}/tasks/{task:path}": self._task,
        }
        routes = [Route(path, self._guarded(answer)) for path, answer in pages_by_path.items()]
        routes.append(Route("/runs/{run}/notes", self._posted, methods=["POST"]))
        routes += [Route("/view.css", _asset("text/css")), Route("/view.js", _asset("text/javascript"))]
        return Starlette(
            routes=routes,
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(self._hosts), www_redirect=False)],
        )

    def _guarded(self, answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """A route that requires the key and shows errors as pages."""

        def guarded(request: Request) -> Response:
            given = request.query_params.get("key", request.cookies.get(COOKIE, ""))
            if self._key and not hmac.compare_digest(given.encode(), self._key):
                message = "this viewer requires the key that it printed when it was opened: .../?key=..."
                return self._error(request, "Key required", message, 401)
            if self._key and "key" in request.query_params:
                response: Response = RedirectResponse(str(request.url.remove_query_params("key")))
                response.set_cookie(COOKIE, self._key.decode(), httponly=True, samesite="strict")
                return response
            if (
                request.headers.get("sec-fetch-site") == "cross-site"
                and request.headers.get("sec-fetch-mode") != "navigate"
            ):
                return Response("this viewer shows its pages, and gives nothing to other sites\n", 403, headers=HEADERS)
            try:
                return answer(request)
            except NotThere as error:
                return self._error(request, "Not found", str(error), 404)
            except UserError as error:
                return self._error(request, "Invalid request", str(error), 400)
            except PosttrainError as error:
                return self._error(request, "Not readable", str(error), 500)
            except Exception as error:  # whatever is damaged, the page reports it, and all others are there
                if type(error) not in self._failed:
                    self._failed.add(type(error))
                    log.error("a page failed; later ones with %s are not logged", type(error).__name__, exc_info=error)
                damage = f"something in the record of this run is damaged ({type(error).__name__}: {error})"
                return self._error(request, "Not readable", damage, 500)

        return guarded

    def _runs(self, request: Request) -> Response:
        return self._shown(request, "runs.html", pages.runs(self._library.runs()))

    def _run(self, request: Request) -> Response:
        name, folder = self._found(request)
        page, sort = _whole(request, "page", 1, least=1), request.query_params.get("sort", "step")
        rising = _among(request, "rising", ("", "1")) == "1"
        return self._shown(request, "run.html", pages.run(name, folder, page=page, sort=sort, rising=rising))

    def _position(self, request: Request) -> Response:
        return JSONResponse(pages.position(self._found(request)[1]), headers=HEADERS)

    def _step(self, request: Request) -> Response:
        name, folder = self._found(request)
        return self._shown(request, "step.html", pages.step(name, folder, request.path_params["step"]))

    def _group(self, request: Request) -> Response:
        name, folder = self._found(request)
        step, group = request.path_params["step"], request.path_params["group"]
        query = request.query_params
        first, colour = _whole(request, "first", 0), query.get("colour", "")
        if "sample" in query:  # the part that has this rollout
            sample = _whole(request, "sample", 0)
            first = (pages.place_in_group(folder, Rollout(step, group, sample)) or 0) // pages.PER_PART * pages.PER_PART
        page = pages.group(name, folder, step, group, colour=colour, everything="all" in query, first=first)
        return self._shown(request, "group.html", page | {"token": self._token})

    def _search(self, request: Request) -> Response:
        name, folder = self._found(request)
        page = finding.search(name, folder, _wanted(request), page=_whole(request, "page", 1, least=1))
        return self._shown(request, "search.html", page, status=400 if page["mistake"] else 200)

    def _export(self, request: Request) -> Response:
        name, folder = self._found(request)
        lines = finding.exported(folder, _wanted(request))
        plain_name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)
        headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{plain_name}.jsonl"'}
        return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")

    def _queue(self, request: Request) -> Response:
        return self._shown(request, "queue.html", finding.queue(*self._found(request)))

    def _heldout(self, request: Request) -> Response:
        name, folder = self._found(request)
        order: Any = _among(request, "order", tuple(HELDOUT_ORDERS))
        page = heldout(name, folder, order, page=_whole(request, "page", 1, least=1))
        return self._shown(request, "heldout.html", page)

    def _curriculum(self, request: Request) -> Response:
        order = _among(request, "order", tuple(CHOICE_ORDERS))
        page = curriculum(*self._found(request), order, page=_whole(request, "page", 1, least=1))
        return self._shown(request, "curriculum.html", page)

    def _pairs(self, request: Request) -> Response:
        page = pairs(*self._found(request), page=_whole(request, "page", 1, least=1))
        return self._shown(request, "pairs.html", page)

    def _curves(self, request: Request) -> Response:
        found, query = self._library.runs(), request.query_params
        chosen = [self._named(name)[0] for name in query.getlist("run")]
        return self._shown(request, "curves.html", overlay(found, chosen, query.getlist("metric")))

    async def _posted(self, request: Request) -> Response:
        """Write labels and a note of one's own, from the form of a page of this process."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_POSTED:
                return self._error(request, "Too long", f"a form has at most {MOST_POSTED:,} bytes", 413)
        return await run_in_threadpool(self._guarded(lambda given: self._note(given, body)), request)

    def _note(self, request: Request, body: bytes) -> Response:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=20)
        given = {key: values[-1] for key, values in fields.items()}
        if not _from_here(request) or not hmac.compare_digest(given.get("token", "").encode(), self._token.encode()):
            message = "this form is not from a page of this viewer, or the viewer was restarted; open the page again"
            return self._error(request, "Not written", message, 403)
        name, folder = self._found(request)
        try:
            place = Rollout(*(int(given[key]) for key in ("step", "group", "sample")))
        except (KeyError, ValueError):
            raise UserError("a note is of a rollout, given by the numbers step, group and sample") from None
        if pages.place_in_group(folder, place) is None:
            raise NotThere(f"the run {name} has no rollout {place.sample} in group {place.group} of step {place.step}")
        Notes(folder).write(place, given.get("labels", ""), given.get("note", ""))
        shown = {"colour": given.get("colour"), "sample": place.sample}
        address = link("runs", name, "steps", place.step, "groups", place.group, **shown)
        return RedirectResponse(f"{address}#rollout-{place.sample}", 303, headers=HEADERS)

    def _solved(self, request: Request) -> Response:
        name, folder = self._found(request)
        by = _one_of(request, "by", Literal["domain", "task"])
        return self._shown(request, "solved.html", pages.solved(name, folder, by))

    def _task(self, request: Request) -> Response:
        name, folder = self._found(request)
        return self._shown(request, "task.html", pages.task(name, folder, request.path_params["task"]))

    def _compare(self, request: Request) -> Response:
        found = self._library.runs()
        query = request.query_params
        first = self._named(query["a"])[0] if "a" in query else next(iter(found), "")
        sides = (
            (first, _whole(request, "of_a", 0, least=-1)),
            (self._named(query["b"])[0] if "b" in query else first, _whole(request, "of_b", -1, least=-1)),
        )
        kind = _among(request, "kind", ("", *pages.OUTCOMES))
        page = pages.compared(found, *sides, kind=kind, page=_whole(request, "page", 1, least=1))
        return self._shown(request, "compare.html", page)

    def _found(self, request: Request) -> tuple[str, Path]:
        """Name and folder of the run in the path. Raises `NotThere` for an unknown one."""
        return self._named(request.path_params["run"])

    def _named(self, name: str) -> tuple[str, Path]:
        """Name and folder of a run. Raises `NotThere` for an unknown one."""
        found = self._library.find(name)
        if found is None:
            raise NotThere(f"there is no run {name} here; there are: {', '.join(self._library.runs()) or 'none'}")
        return found

    def _error(self, request: Request, title: str, message: str, status: int) -> Response:
        """An error as a page."""
        return self._shown(request, "mistake.html", {"title": title, "message": message}, status=status)

    def _shown(self, request: Request, template: str, page: Mapping[str, Any], *, status: int = 200) -> Response:
        """A page as HTML, or with ``?as=json`` as JSON."""
        if request.query_params.get("as") == "json":
            content = json.dumps(plain(dict(page)), allow_nan=False).encode("ascii")
            return Response(content, status, headers=HEADERS, media_type="application/json")
        text = self._templates.get_template(template).render(page, query=request.query_params, here=request.url.path)
        return HTMLResponse(visible(text).encode("utf-8", "replace"), status, headers=HEADERS)

    @cached_property
    def _templates(self) -> Environment:
        environment = Environment(
            loader=FunctionLoader(_read),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {
            "percent": percent,
            "duration": duration,
            "shortened": shortened,
            "number": number,
            "repeated": lambda text: (text, text),
        }
        environment.globals["link"] = link
        return environment


def link(*parts: object, **query: object) -> str:
    """The address of a page: the parts of its path, and a query without values that are None or empty."""
    path = "/" + "/".join(quote(str(part), safe="()") for part in parts)
    given = {key: value for key, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _wanted(request: Request) -> Wanted:
    """The query of a search. Raises `UserError` for values that are not allowed."""
    query = request.query_params
    return finding.label_of(
        Wanted(
            text=query.get("text", ""),
            inside=_one_of(request, "inside", Wanted.__annotations__["inside"]),
            status=query.get("status", ""),
            stop=query.get("stop", ""),
            kept=_one_of(request, "kept", Wanted.__annotations__["kept"]),
            stage=query.get("stage", ""),
            task=query.get("task", ""),
            first=_whole(request, "first", 0),
            last=_whole(request, "last", 0),
            review=_among(request, "review", ("", *REASONS, NOTED)),
            label=query.get("label", ""),
            order=_among(request, "order", tuple(ORDERS)),
        )
    )


def _from_here(request: Request) -> bool:
    """Whether a form was sent by a page of this viewer, as far as the browser reports."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        return False
    return request.headers.get("sec-fetch-site", "same-origin") == "same-origin"


def _read(name: str) -> str:
    """The text of a file in this module's folder."""
    return resources.files("posttrain.viewer").joinpath(name).read_text(encoding="utf-8")


def _asset(media_type: str) -> Callable[[Request], Response]:
    """A route that returns a file of this folder after the file of reports, whose style pages share."""

    def answer(request: Request) -> Response:
        name = request.url.path.lstrip("/")
        same = resources.files("posttrain.runs").joinpath(f"report.{name.rpartition('.')[2]}")
        return Response(same.read_text(encoding="utf-8") + _read(name), media_type=media_type, headers=HEADERS)

    return answer


def _whole(request: Request, name: str, default: int, *, least: int = 0) -> int:
    """A whole number from the query. Raises `UserError` for anything else."""
    given = request.query_params.get(name, "")
    if not given:
        return default
    try:
        value = int(given)
    except ValueError:
        raise UserError(f"{name} must be a whole number, got {given!r}") from None
    if value < least or value > 2**31:
        raise UserError(f"{name} must be at least {least}, got {given}")
    return value


def _one_of(request: Request, name: str, choices: Any) -> Any:
    """A value of a ``Literal`` from the query."""
    return _among(request, name, get_args(choices))


def _among(request: Request, name: str, choices: tuple[str, ...]) -> str:
    """One of `choices` from the query; the first by default. Raises `UserError` for any other."""
    given = request.query_params.get(name, choices[0])
    if given not in choices:
        raise UserError(f"{name} must be one of {', '.join(map(repr, choices))}, got {given!r}")
    return given
