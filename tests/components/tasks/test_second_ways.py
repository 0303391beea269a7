"""Generated tasks are right in a second way: 1,000 of each are run, computed or searched; 10,000 do not repeat."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from posttrain.components.tasks import Tasks
from posttrain.components.tasks.choices import Choices
from posttrain.components.tasks.ciphers import Ciphers
from posttrain.components.tasks.code_lines import CodeLines
from posttrain.components.tasks.guards import Guards
from posttrain.components.tasks.identities import Identities
from posttrain.components.tasks.passages import Passages
from posttrain.components.tasks.recorded_shopping import RecordedShopping
from posttrain.components.tasks.refactorings import Refactorings
from posttrain.components.tasks.repairs import Repairs
from posttrain.components.tasks.scored_documents import ScoredDocuments
from posttrain.components.tasks.tool_requests import ToolRequests

pytestmark = pytest.mark.slow


def called(files: dict[str, str], calls: list[str]) -> list[Any]:
    names: dict[str, Any] = {}
    for _, text in sorted(files.items()):
        exec(text, names)
    return [eval(call, names) for call in calls]


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_repairs_are_run(level: int) -> None:
    for task in Repairs(size=200, level=level).load():
        files, oracle, calls = (task.fields[name] for name in ("files", "oracle", "calls"))
        assert called(files, calls) != called({**files, **oracle}, calls)
        [changed] = [path for path in oracle if files[path] != oracle[path]]
        lines = zip(files[changed].split("\n"), oracle[changed].split("\n"), strict=True)
        assert sum(old != new for old, new in lines) == 1


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_refactorings_are_run(level: int) -> None:
    for task in Refactorings(size=200, level=level).load():
        source, answer, inputs = task.fields["source"], task.answer or "", task.fields["inputs"]
        calls = [f"f(*{row})" for row in inputs]
        assert called({"a": source}, calls) == called({"a": answer}, calls) and answer.count("def ") == 2


def test_lines_behind_guards_are_reached() -> None:
    for task in Guards(size=1000, depth=(3, 8)).load():
        lines = task.fields["source"].split("\n")
        lines[task.fields["line"] - 1] = re.sub(r"\S.*", "raise LookupError", lines[task.fields["line"] - 1])
        lines = lines[: task.fields["line"]]
        with pytest.raises(LookupError):
            called({"a": "\n".join(lines)}, [f"f({', '.join((task.answer or '').split())})"])


def test_statements_are_computed() -> None:
    for task in Identities(size=1000).load():
        [statement] = re.findall(r"Q: (.*)\?", str(task.prompt))
        left, right = statement.split("=")
        assert (eval(left) == eval(right)) is task.fields["truth"]


def test_ciphers_are_one_to_one() -> None:
    words: dict[str, str] = {}
    for task in Ciphers(size=1000).load():
        for word, other in zip(task.fields["source"].split(), (task.answer or "").split(), strict=True):
            assert words.setdefault(word, other) == other
    assert len(set(words.values())) == len(words)


def test_relevant_documents_are_searched() -> None:
    for task in Passages(size=1000).load():
        query, *shown = str(task.prompt).split("\n")[:-1]
        found = [int(line.split()[0]) for line in shown if line.split()[1].startswith(query[0])]
        assert found == task.fields["relevant"] and sorted(task.fields["order"]) == list(range(1, len(shown) + 1))
    for task in ScoredDocuments(size=1000).load():
        pairs = [prompt.rstrip(":").split() for prompt in task.fields["prompts"]]
        assert [query == document for query, document in pairs] == task.fields["relevant"]


LARGE: dict[str, Callable[[int], Tasks]] = {
    "choices": lambda seed: Choices(size=10_000, seed=seed),
    "ciphers": lambda seed: Ciphers(size=10_000, seed=seed),
    "guards": lambda seed: Guards(size=2_000, seed=seed, depth=(5, 5)),
    "passages": lambda seed: Passages(size=10_000, seed=seed),
    "recorded_shopping": lambda seed: RecordedShopping(size=10_000, seed=seed),
    "refactorings": lambda seed: Refactorings(size=10_000, seed=seed, level=3),
    "repairs": lambda seed: Repairs(size=10_000, seed=seed, level=2),
    "scored_documents": lambda seed: ScoredDocuments(size=10_000, seed=seed),
    "tool_requests": lambda seed: ToolRequests(size=10_000, seed=seed, level=3),
}


@pytest.mark.parametrize("kind", LARGE)
def test_ten_thousand_do_not_repeat(kind: str) -> None:
    tasks = LARGE[kind](0).load()
    assert len({(str(task.prompt), task.answer) for task in tasks}) == len(tasks) == 10_000


def test_lines_of_templates_repeat_once_all_are_drawn() -> None:
    tasks = CodeLines(size=10_000).load()
    assert len({str(task.prompt) for task in tasks}) > 5_000
