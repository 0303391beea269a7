"""The viewer's web application: routes, the key, and allowed hosts.

Pages are only read, never changed, and only their own style and script may run in them: what a model wrote is shown as
text. Only requests for the address that the viewer was opened at are answered, so that no other site can make a browser
ask (DNS rebinding); a viewer that other machines can reach wants a key with the first request.
"""

import hmac
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import quote, urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from posttrain.errors import PosttrainError, UserError
from posttrain.runs.journal import plain
from posttrain.runs.readings import number
from posttrain.runs.report import shortened, visible
from posttrain.runs.summary import duration, percent
from posttrain.viewer import pages
from posttrain.viewer.library import Library
from posttrain.viewer.pages import NotThere
from posttrain.viewer.questions import ORDERS, Wanted

OWN_NAMES = ("localhost", "127.0.0.1", "::1", "[::1]")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; img-src data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
COOKIE = "posttrain_key"


class Viewer:
    """The pages of a library of runs."""

    def __init__(self, library: Library, *, key: str = "", hosts: tuple[str, ...] = OWN_NAMES) -> None:
        """`key` must come with a browser's first request, if it is not empty; `hosts` are what it may be asked as."""
        self._library = library
        self._key = key.encode()
        self._hosts = hosts

    def app(self) -> Starlette:
        """As ASGI servers take it."""
        shown: dict[str, Callable[[Request], Response]] = {
            "/": self._runs,
            "/compare": self._compare,
            "/runs/{run}": self._run,
            "/runs/{run}/position": self._position,
            "/runs/{run}/steps/{step:int}": self._step,
            "/runs/{run}/steps/{step:int}/groups/{group:int}": self._group,
            "/runs/{run}/search": self._search,
            "/runs/{run}/solved": self._solved,
            "/runs/{run}/tasks/{task:path}": self._task,
        }
        routes = [Route(path, self._guarded(answer)) for path, answer in shown.items()]
        routes += [Route("/view.css", _asset("text/css")), Route("/view.js", _asset("text/javascript"))]
        return Starlette(
            routes=routes,
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(self._hosts), www_redirect=False)],
        )

    def _guarded(self, answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """An answer behind the key; what goes wrong is a page too."""

        def guarded(request: Request) -> Response:
            given = request.query_params.get("key", request.cookies.get(COOKIE, ""))
            if self._key and not hmac.compare_digest(given.encode(), self._key):
                said = "this viewer wants the key that it printed when it was opened: .../?key=..."
                return self._shown(request, "mistake.html", {"title": "Not here", "said": said}, status=401)
            if self._key and "key" in request.query_params:
                response: Response = RedirectResponse(str(request.url.remove_query_params("key")))
                response.set_cookie(COOKIE, self._key.decode(), httponly=True, samesite="strict")
                return response
            try:
                return answer(request)
            except NotThere as error:
                return self._shown(request, "mistake.html", {"title": "Not there", "said": str(error)}, status=404)
            except UserError as error:
                return self._shown(request, "mistake.html", {"title": "Not like that", "said": str(error)}, status=400)
            except PosttrainError as error:
                return self._shown(request, "mistake.html", {"title": "Not readable", "said": str(error)}, status=500)

        return guarded

    def _runs(self, request: Request) -> Response:
        return self._shown(request, "runs.html", pages.runs(self._library.runs()))

    def _run(self, request: Request) -> Response:
        name, folder = self._found(request)
        return self._shown(request, "run.html", pages.run(name, folder, page=_whole(request, "page", 1, least=1)))

    def _position(self, request: Request) -> Response:
        return JSONResponse(pages.position(self._found(request)[1]), headers=HEADERS)

    def _step(self, request: Request) -> Response:
        name, folder = self._found(request)
        return self._shown(request, "step.html", pages.step(name, folder, request.path_params["step"]))

    def _group(self, request: Request) -> Response:
        name, folder = self._found(request)
        step, group = request.path_params["step"], request.path_params["group"]
        asked = request.query_params
        page = pages.group(name, folder, step, group, colour=asked.get("colour", ""), everything="all" in asked)
        return self._shown(request, "group.html", page)

    def _search(self, request: Request) -> Response:
        name, folder = self._found(request)
        asked = request.query_params
        wanted = Wanted(
            text=asked.get("text", ""),
            inside=_one_of(request, "inside", Wanted.__annotations__["inside"]),
            status=asked.get("status", ""),
            stop=asked.get("stop", ""),
            kept=_one_of(request, "kept", Wanted.__annotations__["kept"]),
            stage=asked.get("stage", ""),
            task=asked.get("task", ""),
            first=_whole(request, "first", 0),
            last=_whole(request, "last", 0),
            order=_among(request, "order", tuple(ORDERS)),
        )
        page = pages.search(name, folder, wanted, page=_whole(request, "page", 1, least=1))
        return self._shown(request, "search.html", page, status=400 if page["mistake"] else 200)

    def _solved(self, request: Request) -> Response:
        name, folder = self._found(request)
        by = _one_of(request, "by", Literal["domain", "task"])
        return self._shown(request, "solved.html", pages.solved(name, folder, by))

    def _task(self, request: Request) -> Response:
        name, folder = self._found(request)
        return self._shown(request, "task.html", pages.task(name, folder, request.path_params["task"]))

    def _compare(self, request: Request) -> Response:
        found = self._library.runs()
        asked = request.query_params
        first = asked.get("a", next(iter(found), ""))
        sides = (
            (first, _whole(request, "of_a", 0, least=-1)),
            (asked.get("b", first), _whole(request, "of_b", -1, least=-1)),
        )
        kind = _among(request, "kind", ("", *pages.OUTCOMES))
        page = pages.compared(found, *sides, kind=kind, page=_whole(request, "page", 1, least=1))
        return self._shown(request, "compare.html", page)

    def _found(self, request: Request) -> tuple[str, Path]:
        """The run that an address names."""
        name, found = request.path_params["run"], self._library.runs()
        if name not in found:
            raise NotThere(f"there is no run {name} here; there are: {', '.join(found) or 'none'}")
        return name, found[name]

    def _shown(self, request: Request, template: str, page: Mapping[str, Any], *, status: int = 200) -> Response:
        """A page as HTML, or with ``?as=json`` as JSON."""
        if request.query_params.get("as") == "json":
            return JSONResponse(plain(dict(page)), status, headers=HEADERS)
        text = self._templates.get_template(template).render(page, asked=request.query_params, here=request.url.path)
        return HTMLResponse(visible(text), status, headers=HEADERS)

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
        }
        environment.globals["link"] = link
        return environment


def link(*parts: object, **query: object) -> str:
    """The address of a page: the parts of its path, and what is asked for; what is None or empty is left out."""
    path = "/" + "/".join(quote(str(part), safe="") for part in parts)
    asked = {key: value for key, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(asked)}" if asked else path


def _read(name: str) -> str:
    """A file that lies beside this module."""
    return resources.files("posttrain.viewer").joinpath(name).read_text(encoding="utf-8")


def _asset(media_type: str) -> Callable[[Request], Response]:
    """Answers with a file of this folder; the style of reports comes first, since pages look like them."""

    def answer(request: Request) -> Response:
        name = request.url.path.lstrip("/")
        same = resources.files("posttrain.runs").joinpath(f"report.{name.rpartition('.')[2]}")
        return Response(same.read_text(encoding="utf-8") + _read(name), media_type=media_type, headers=HEADERS)

    return answer


def _whole(request: Request, name: str, default: int, *, least: int = 0) -> int:
    """A whole number of the address. Raises `UserError` for anything else."""
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
    """A choice of a ``Literal``."""
    return _among(request, name, get_args(choices))


def _among(request: Request, name: str, choices: tuple[str, ...]) -> str:
    """A choice of the address, the first unless it says another. Raises `UserError` for what is none."""
    given = request.query_params.get(name, choices[0])
    if given not in choices:
        raise UserError(f"{name} must be one of {', '.join(map(repr, choices))}, got {given!r}")
    return given
