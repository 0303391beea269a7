"""Generated tasks are right in a second way: 1,000 of each are run, computed or searched; 10,000 do not repeat."""

import ast
import re
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from itertools import islice
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

import posttrain
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.choices import Choices
from posttrain.components.tasks.ciphers import Ciphers
from posttrain.components.tasks.code_lines import NAMES, CodeLines
from posttrain.components.tasks.exercises import Exercises
from posttrain.components.tasks.fractions import Fractions
from posttrain.components.tasks.guards import Guards
from posttrain.components.tasks.identities import Identities
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.passages import Passages
from posttrain.components.tasks.recorded_shopping import RecordedShopping
from posttrain.components.tasks.refactorings import Refactorings
from posttrain.components.tasks.repairs import Repairs
from posttrain.components.tasks.scored_documents import ScoredDocuments
from posttrain.components.tasks.sentences import Sentences
from posttrain.components.tasks.stories import Stories
from posttrain.components.tasks.suites import Suites
from posttrain.components.tasks.taught import Taught
from posttrain.components.tasks.tool_requests import ToolRequests
from posttrain.datasets.function_steps import plans, with_steps
from posttrain.datasets.holdout import holdout
from posttrain.datasets.keys import problem
from tests.components.tasks.test_stories import played

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


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_functions_of_suites_are_run(level: int) -> None:
    """Three sources agree on inputs that the generator did not try, and each copy differs on the test that it has."""
    for task in islice(Suites(size=260, level=level, faults=2, inputs=30).load(), 60 if level == 1 else 0, 260):
        rng, (low, high, longest) = Random(task.key), task.fields["domain"]
        tried = [[rng.randint(low, high) for _ in range(rng.randint(0, longest))] for _ in range(30)]
        calls = [f"f({x if longest else rng.randint(low, high)})" for x in tried]
        first, *others = task.fields["correct"]
        assert all(called({"a": own}, calls) == called({"a": first}, calls) for own in others)
        tests = task.demonstrations[0].split("\n")[:-1]
        called({"a": first + task.demonstrations[0]}, [])
        for wrong in task.fields["wrong"]:
            assert not all(map(partial(_holds, wrong), tests))


def _holds(source: str, test: str) -> bool:
    try:
        called({"a": f"{source}\n{test}"}, [])
    except Exception:  # a fault may raise anything
        return False
    return True


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_lines_of_code_are_parsed(level: int) -> None:
    for task in CodeLines(size=1000 if level == 1 else 200, level=level).load():
        line = f"{task.prompt}{task.answer}"
        assert line == task.fields["line"]
        [function] = ast.parse(f"def f():\n {line}").body
        assert line.count("; ") == level - 1
        used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        assert used <= {*NAMES, "max", "len", "print", "sorted", "set"}


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_stories_are_played(level: int) -> None:
    for task in Stories(size=1000, level=level).load():
        asked = str(task.prompt)
        assert played(asked) == task.answer
        if copy := task.fields.get("shuffled"):
            assert played(copy) != task.answer and sorted(copy.split(". ")[:-1]) == sorted(asked.split(". ")[:-1])


def test_sums_are_computed() -> None:
    for level in range(1, 6):
        for task in Fractions(size=200, level=level).load():
            value = sum(map(Fraction, str(task.prompt).removeprefix("Q: ").removesuffix("\nA:").split("+")))
            assert [Fraction(form) for form in task.fields["forms"][:2]] == [value, value]
    for task in Taught(tasks=Arithmetic(size=1000, terms=(3, 3)), closing="\n####").load():
        [statement] = re.findall(r"\d[\d+-]*", str(task.fields["question"]))
        assert str(eval(statement)) == task.fields["solution"]


@pytest.mark.parametrize(
    "name", ["barfi", "cgpo", "constrained_rates", "memory_r_plus", "mrt", "clip_delta", "pattern_reward"]
)
def test_sums_and_copies_of_recipes_are_computed(name: str) -> None:
    """Answers, and each step of a demonstration, by Python's arithmetic; copies by their words."""
    given = posttrain.recipe(name).tasks
    sources = given.sources.values() if isinstance(given, Mixture) else [given]
    large = [replace(own, size=1000) if hasattr(own, "size") else own for own in sources]
    tasks = [task for own in large for task in own.load()[:1000]]
    assert len(tasks) >= 1000
    for task in tasks:
        if copied := re.fullmatch(r"Repeat: (.*)\n", str(task.prompt)):
            assert copied[1] == task.answer == task.demonstrations[0]
            continue
        [statement] = re.findall(r"Q: ([\d+-]+)\n", str(task.prompt))
        assert str(eval(statement)) == task.answer
        for shown in task.demonstrations:
            for left, right in re.findall(r"(-?\d+[+-]\d+)=(-?\d+)", shown):
                assert eval(left) == int(right), shown


LARGE: dict[str, Callable[[int], Tasks]] = {
    "arithmetic": lambda seed: Arithmetic(size=10_000, seed=seed),
    **{f"code_lines {n}": lambda seed, n=n: CodeLines(size=10_000, seed=seed, level=n) for n in range(1, 6)},
    **{f"fractions {n}": lambda seed, n=n: Fractions(size=10_000, seed=seed, level=n) for n in range(1, 6)},
    **{f"stories {n}": lambda seed, n=n: Stories(size=10_000, seed=seed, level=n) for n in range(1, 6)},
    **{f"passages {n}": lambda seed, n=n: Passages(size=10_000, seed=seed, level=n) for n in (1, 5)},
    **{f"ciphers {n}": lambda seed, n=n: Ciphers(size=10_000, seed=seed, level=n) for n in (1, 5)},
    **{f"recorded_shopping {n}": lambda seed, n=n: RecordedShopping(size=10_000, seed=seed, level=n) for n in (1, 5)},
    **{f"scored_documents {n}": lambda seed, n=n: ScoredDocuments(size=10_000, seed=seed, level=n) for n in (1, 5)},
    **{f"identities {n}": lambda seed, n=n: Identities(size=10_000, seed=seed, level=n) for n in range(1, 6)},
    "copies": lambda seed: Exercises(names=("copy",), size=10_000, seed=seed, items=(4, 6)),
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
    train, held_out = holdout(tasks, 500, seed=0)
    assert len(held_out) >= 500 and not {problem(task) for task in train} & {problem(task) for task in held_out}


def test_ten_thousand_functions_of_suites_do_not_repeat() -> None:
    """Their copies take a while, so the functions are compared before these are made."""
    for level in range(1, 6):
        drawn = islice(plans(level), 10_000)
        assert len({with_steps(shape, steps).text.replace("K", str(k)) for shape, k, steps in drawn}) == 10_000


@pytest.mark.parametrize("tasks", [Guards, Ciphers, Passages, ScoredDocuments, RecordedShopping, Sentences])
def test_levels_are_harder(tasks: Any) -> None:
    lengths = [sum(len(str(task.prompt)) for task in tasks(size=100, level=n).load()) for n in range(1, 6)]
    lengths = [n / len(tasks(size=100, level=i).load()) for i, n in enumerate(lengths, 1)]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]
    [name] = {"depth", "length", "passages", "documents", "pages", "sentences"} & {f.name for f in fields(tasks)}
    with pytest.raises(ValidationError, match=f"level 2 sets {name}; give one of the two"):
        tasks(level=2, **{name: 7 if name in ("passages", "documents") else (3, 4)})
