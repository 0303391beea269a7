"""Prompts of rows that have none: made of the columns that say what is to be done.

    patches   issue, files                the issue, then every file below its path
    suites    correct, wrong, function    the request for tests, and the first correct solution
    ranking   query, documents            the query and the numbered documents; the field ``prompts`` has one for each
    shop      pages, actions, target      the pages and the actions between them
    calls     messages, tools             the tools in the system message where they are in none; a last message that
                                          calls tools is the answer, the others are the prompt

A row keeps its columns. Rows with a prompt stay as they are.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from posttrain.datasets.messages import looks_like_messages
from posttrain.datasets.rows import Row
from posttrain.errors import UserError
from posttrain.errors.foreign import parse_json

OTHERS: Final = frozenset(
    {"prompt", "question", "problem", "instruction", "input", "messages", "conversations", "text", "chosen"}
)
"""Columns beside which a row needs no prompt."""
ANSWERS: Final = frozenset({"answer", "ground_truth", "target", "gold", "solution", "reference"})
"""Columns beside which the last message is no answer."""
TESTS: Final = "Write tests of {name}, each in a line: assert {name}(...) == ...\n\n{source}\n"
SCORE: Final = "{query}\n{document}\nscore 0 to 10:"
Values = Mapping[str, Any]


def composed(rows: Sequence[Row], named: Mapping[Any, str | None]) -> Sequence[Row]:
    """The rows with prompts; the same rows where the user has named a column of the prompt."""
    if {"prompt", "messages", "text"} & named.keys() or not rows:
        return rows
    first = {column for column, value in rows[0].values.items() if value is not None}
    for needed, unless, form in FORMS:
        if needed <= first and not unless & first:
            return [row._replace(values={**row.values, **form(row.values, row.place)}) for row in rows]
    return rows


def _patch(values: Values, place: str) -> Values:
    files = values.get("files")
    if not isinstance(files, Mapping):
        return {}
    shown = "".join(f"### {path}\n{text}\n" for path, text in files.items())
    return {"prompt": f"{values.get('issue')}\n{shown}"}


def _suite(values: Values, place: str) -> Values:
    correct = values.get("correct")
    if not isinstance(correct, list) or not correct or not isinstance(correct[0], str):
        raise UserError(f"{place}: 'correct' must be a list of two or more sources, got {correct!r:.60}")
    return {"prompt": TESTS.format(name=values.get("function") or "f", source=correct[0].strip())}


def _ranking(values: Values, place: str) -> Values:
    query, documents = values.get("query"), values.get("documents")
    if not isinstance(documents, list) or not documents or not all(isinstance(own, str) and own for own in documents):
        raise UserError(f"{place}: 'documents' must be a list of texts, got {documents!r:.60}")
    if not isinstance(query, str) or not query.strip():
        raise UserError(f"{place}: 'query' must be a text, got {query!r:.60}")
    made = ranking_prompts(query, documents)
    return {**made, "prompts": values["prompts"]} if "prompts" in values else made


def ranking_prompts(query: str, documents: Sequence[str]) -> dict[str, Any]:
    """``prompt``, with all documents and their numbers, and ``prompts``, with one document each."""
    listed = "\n".join(f"{number} {text}" for number, text in enumerate(documents, 1))
    alone = [SCORE.format(query=query, document=own) for own in documents]
    return {"prompt": f"{query}\n{listed}\n:", "prompts": alone}


def _visit(values: Values, place: str) -> Values:
    pages, actions = values.get("pages"), values.get("actions") or []
    if not isinstance(pages, list) or not pages:
        raise UserError(f"{place}: 'pages' must be a list of pages, the last the one to act on, got {pages!r:.60}")
    if not isinstance(actions, list) or len(actions) != len(pages) - 1:
        raise UserError(
            f"{place}: 'actions' has {len(actions) if isinstance(actions, list) else repr(actions)[:60]} of "
            f"{len(pages) - 1}: there must be one between each page and the next; that on the last page is 'target'"
        )
    lines = [_page(pages[0], place)]
    for action, page in zip(actions, pages[1:], strict=True):
        lines += [f"> {_action(action)}", _page(page, place)]
    return {"prompt": "\n".join(lines) + "\n:"}


def _page(page: Any, place: str) -> str:
    """A page as text: as it is, or its buttons."""
    if isinstance(page, str):
        return page
    if isinstance(page, list) and all(isinstance(own, str) for own in page):
        return "; ".join(page)
    raise UserError(f"{place}: a page is a text, or a list of the names of its buttons, got {page!r:.60}")


def _action(action: Any) -> str:
    """An action in words; a rationale beside it is kept."""
    if isinstance(action, Mapping):
        return " ".join(map(str, action.values()))
    return str(action)


def _call(values: Values, place: str) -> Values:
    messages: Any = values.get("messages")
    if not looks_like_messages(messages):
        return {}
    found = list(parse_json(messages) if isinstance(messages, str) else messages)
    answer = {}
    calls = found[-1].get("tool_calls")
    if found[-1].get("role") == "assistant" and calls and len(found) > 1 and not ANSWERS & values.keys():
        found, answer = found[:-1], {"answer": json.dumps(calls)}
    return {"messages": _with_tools(found, values.get("tools")), **answer}


def _with_tools(messages: list[Any], tools: Any) -> list[Any]:
    """Messages whose first, by the system, lists the tools; the same messages where all are named in them."""
    if not isinstance(tools, list) or not tools or not all(isinstance(own, Mapping) for own in tools):
        return messages
    names = [own["function"] if isinstance(own.get("function"), Mapping) else own for own in tools]
    texts = "\n".join(str(message.get("content") or message.get("value")) for message in messages)
    if all(str(own.get("name")) in texts for own in names):
        return messages
    listed = "\n".join(["Tools:", *(json.dumps(own, ensure_ascii=False) for own in names)])
    first, *rest = messages
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": f"{first['content']}\n\n{listed}"}, *rest]
    return [{"role": "system", "content": listed}, *messages]


FORMS: Final[tuple[tuple[frozenset[str], frozenset[str], Callable[[Values, str], Values]], ...]] = (
    (frozenset({"issue", "files"}), OTHERS | {"query"}, _patch),
    (frozenset({"correct", "wrong"}), OTHERS | {"query", "issue", "source", "statement"}, _suite),
    (frozenset({"query", "documents"}), OTHERS, _ranking),
    (frozenset({"pages", "target"}), OTHERS | {"query"}, _visit),
    (frozenset({"messages", "tools"}), frozenset(), _call),
)
"""Columns of the first row that are needed, others that must not be there, and what makes the prompt."""
