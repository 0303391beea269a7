"""Renders one chat template, in a process of its own: ``python _template_worker.py SYS_PATH SECONDS BYTES``.

A template is a program of a stranger's, and no list of checked operators bounds one: it can multiply, repeat, double,
format, nest and compare in too many ways. Here it may do all of that, with limited processor time, memory and output;
what takes more ends this process and nothing else. `posttrain.policies._templates` starts it and reads what it writes.

It reads lines of JSON, first ``{"source"}`` and then one for each rendering, and answers each with ``{"text"}``,
``{"refused"}`` (the template's own words), or ``{"failed"}``. It imports nothing of the package.
"""

import json
import math
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

MOST_OUTPUT = 1_000_000
"""Characters of a rendered conversation."""
_PLAIN = (str, int, float, bool, type(None), list, tuple, dict)


class _Refused(Exception):
    """What a template calls to refuse messages."""


def _raise(message: object) -> NoReturn:
    raise _Refused(str(message)[:2000])


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes that HTML would need."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment(today: str) -> Any:
    """The template engine with what chat templates of Hugging Face models rely on, and nothing that draws or waits."""
    from datetime import date

    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Accepts ``{% generation %}`` blocks, which mark the assistant's words in some templates, and renders them."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> list[nodes.Node]:
            """The block's own content."""
            next(parser.stream)
            return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))

    def plain(value: Any) -> Any:
        """What may be written: an object would show its address, which is another one in every process."""
        from jinja2 import Undefined

        if isinstance(value, (*_PLAIN, Undefined)) or hasattr(value, "__html__"):
            return value
        if callable(value) or hasattr(value, "__next__"):
            raise TypeError(f"a template writes text, numbers, lists and objects, but this is a {type(value).__name__}")
        return value

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], finalize=plain
    )
    environment.filters["tojson"] = _to_json
    del environment.filters["random"], environment.globals["lipsum"]
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = date.fromisoformat(today).strftime
    return environment


def _allow(seconds: int) -> None:
    """End this process when it takes more processor time than this from now on."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, hard))


def _render(template: Any, values: dict[str, Any]) -> str:
    """The text of one rendering, of which no more is made than may be there."""
    pieces, length = [], 0
    for piece in template.generate(**values):
        pieces.append(piece)
        length += len(piece)
        if length > MOST_OUTPUT:
            raise OverflowError(f"it writes more than {MOST_OUTPUT:,} characters")
    text = "".join(pieces)
    text.encode()
    return text


def _answer(work: Callable[[], str]) -> dict[str, Any]:
    """The result of a piece of work, as JSON."""
    try:
        return {"text": work()}
    except _Refused as refusal:
        return {"refused": str(refusal)}
    except MemoryError:
        return {"failed": "it takes too much memory", "last": True}
    except UnicodeEncodeError:
        return {"failed": "it writes half of a character (an unpaired surrogate)"}
    except BaseException as error:  # a template is a program, and fails in any way that one can
        name = "" if type(error).__module__.startswith("jinja2") else f"{type(error).__name__}: "
        return {"failed": f"{name}{str(error)[:2000]}"}


def main() -> None:
    """Serve until the input ends."""
    sys.path[:] = json.loads(sys.argv[1])
    seconds, most_bytes = int(sys.argv[2]), int(sys.argv[3])
    first = json.loads(sys.stdin.readline())
    environment = _environment(first["today"])
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    template: Any = None

    def compile_it() -> str:
        nonlocal template
        template = environment.from_string(first["source"])
        return ""

    works: Callable[[], str] = compile_it
    while True:
        _allow(seconds)
        answer = _answer(works)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        if answer.get("last") or not (line := sys.stdin.readline()):
            return
        values = json.loads(line)
        works = partial(_render, template, values)


if __name__ == "__main__":
    main()
