"""What is right, decided beside the rewards: each text is read and run here in another way than by its reward."""

import ast
import asyncio
import json
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from fractions import Fraction
from random import Random
from types import FrameType
from typing import Any

import numpy as np

from posttrain.components.rewards import Reward, RewardContext
from posttrain.grading.kernel_references import open_references
from posttrain.grading.kernel_values import TOLERANCE, cases_of, difference, drawn, packed, unpacked
from posttrain.grading.toy_kernels import SCRIPT
from posttrain.types import Group, Segment, Task, Trajectory

Oracle = Callable[[Task, str], bool]
_ROUNDS = 100_000


def last_number(task: Task, text: str) -> bool:
    """The last number of the text is the answer."""
    found = re.findall(r"-?\d+(?:/\d+)?(?:\.\d+)?", text)
    return bool(found) and _number(found[-1]) == _number(str(task.answer))


def last_words(task: Task, text: str) -> bool:
    """The last line, of a text with tags what is in the last of them, has the words of the answer alone."""
    found = re.findall(r"<\w+>([^<>]*)</\w+>|\\boxed\{([^{}]*)\}|####([^\n]*)", text)
    last = next((part for part in found[-1] if part), "") if found else text.strip().rpartition("\n")[2]
    last = re.sub(r"<[^<>]*>?", "", last)
    forms = [str(own).casefold().split() for own in (task.answer, *task.fields.get("forms", ()))]
    return last.casefold().strip(" .:()[]").split() in forms


def last_verdict(task: Task, text: str) -> bool:
    """The last verdict of the text is the right one, and stands in a box."""
    found = re.findall(r"\bdisproved\b|\bproved\b", text.casefold())
    wanted = "proved" if task.fields["truth"] in (True, "true", "True", "proved") else "disproved"
    return bool(found) and found[-1] == wanted and "boxed" in text


def top_of_order(task: Task, text: str) -> bool:
    """The answer has each number once, the relevant ones first."""
    found = [int(number) for number in re.findall(r"\d+", text.rpartition("<answer>")[2].partition("</answer>")[0])]
    relevant = set(task.fields["relevant"])
    return sorted(found) == list(range(1, len(task.fields["order"]) + 1)) and set(found[: len(relevant)]) == relevant


def same_calls(task: Task, text: str) -> bool:
    """The block has the wanted calls in some order; without wanted calls there is no block."""
    _, found, rest = text.partition("<tool_call>")
    wanted = [line for line in str(task.answer).splitlines() if line.startswith("{")]
    if not found or not wanted:
        return not found and not wanted
    try:
        own = [json.loads(line) for line in rest.partition("</tool_call>")[0].split("\n") if line.strip()]
    except ValueError:
        return False
    return _sorted(own) == _sorted(list(map(json.loads, wanted)))


def same_action(task: Task, text: str) -> bool:
    """The action of the text is what was done."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    wanted = json.loads(str(task.answer))
    return isinstance(found, dict) and found.get("action") == wanted.get("action", wanted)


def without_word(task: Task, text: str) -> bool:
    """The unwanted word is not there."""
    return "darn" not in re.findall(r"\w+", text)


def kept_limits(task: Task, text: str) -> bool:
    """The answer of a sum ends at most 36 characters, of a copy it is the only line."""
    long = len(text) > 36 or "\0" in text if task.domain == "sums" else len(text.strip("\n").split("\n")) > 1
    wanted = last_number if task.domain == "sums" else last_words
    return not long and wanted(task, text)


def kills_all(task: Task, text: str) -> bool:
    """Every wrong function fails one of the tests, and no right one does; tests are calls with literals."""
    right, wrong = ([_function(source) for source in task.fields[name]] for name in ("correct", "wrong"))
    tests = [found for line in text.splitlines() if (found := _test(line.strip())) is not None]
    if not tests or any(_fails(solution, *test) for solution in right for test in tests):
        return False
    return all(any(_fails(solution, *test) for test in tests) for solution in wrong)


def same_function(task: Task, text: str) -> bool:
    """A function of the text is called by another, and on 200 drawn inputs the results are those of the source."""
    code = text.partition("```python\n")[2].partition("```")[0] or text
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return False
    named = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    if not named & called or "f" not in named:
        return False
    before, after = _function(task.fields["source"]), _function(code)
    count = len(next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "f").args.args)
    rng = Random(f"{task.key}:{text}")
    drawn = [[rng.randint(-50, 50) for _ in range(count)] for _ in range(200)]
    return all(_outcome(before, *own) == _outcome(after, *own) for own in drawn)


def reaches(task: Task, text: str) -> bool:
    """The input, on the last line, makes the program run the line; the interpreter's own trace shows it."""
    last = (text.rstrip("\n").rpartition("\n")[2]).rpartition("####")[2].strip()
    try:
        inputs = [int(word) for word in last.replace(",", " ").split()]
    except ValueError:
        return False
    space: dict[str, Any] = {}
    exec(compile(task.fields["source"], "guarded.py", "exec"), space)
    lines: set[int] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename == "guarded.py" and event == "line":
            lines.add(frame.f_lineno)
        return trace

    sys.settrace(trace)
    try:
        _outcome(space[task.fields.get("function", "f")], *inputs)
    finally:
        sys.settrace(None)
    return task.fields["line"] in lines


def same_values(task: Task, text: str) -> bool:
    """A program in the toy language, run in this process, has the values of the reference on other inputs."""
    answer, rng = open_references(None), np.random.default_rng(96)
    space: dict[str, Any] = {"strict": True}
    cases = [drawn(case, rng) for case in cases_of(task.fields["inputs"])]
    sent = [[packed(argument) for argument in case] for case in cases]
    expected = answer({"source": task.fields["reference"], "function": "f", "cases": sent})
    try:
        with redirect_stdout(None):
            exec(SCRIPT, space)
            own = space["space_of"](0, text, "", "f")
            found = [space["closed"](own["f"](*map(space["opened"], case))) for case in sent]
        arrays = [unpacked(first) for (first,) in expected]
        return not any(difference(a, b, TOLERANCE[b.dtype]) for a, b in zip(found, arrays, strict=True))
    except Exception:
        return False


def other_inputs(reward: Reward) -> Oracle:
    """The reward again, on inputs of another seed."""

    def decide(task: Task, text: str) -> bool:
        own = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text)
        group = Group(key=task.key, trajectories=(Trajectory(task=task, segments=(own,), stop_reason="stop"),))
        (score,) = asyncio.run(reward.score(group, RewardContext(seed=1)))
        return score.status == "ok"

    return decide


def equal_texts(task: Task, text: str) -> bool:
    """The text is a demonstration."""
    return text.strip() in [own.strip() for own in task.demonstrations]


def _number(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


def _sorted(calls: list[Any]) -> list[str]:
    return sorted(json.dumps(call, sort_keys=True) for call in calls)


def _function(source: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(source, "own.py", "exec"), space)
    return space["f"]


def _test(line: str) -> tuple[tuple[Any, ...], Any] | None:
    found = re.fullmatch(r"assert\s+f\s*\((.*)\)\s*==\s*(.*)", line)
    try:
        return ast.literal_eval(f"({found[1]},)"), ast.literal_eval(found[2])  # type: ignore[index]
    except (SyntaxError, ValueError, TypeError, RecursionError):
        return None


def _fails(function: Any, inputs: tuple[Any, ...], expected: Any) -> bool:
    return _outcome(function, *inputs) != ("returned", repr(expected))


def _outcome(function: Any, *inputs: Any) -> tuple[str, str]:
    """What a call gives; a loop is ended after many rounds."""
    rounds = 0

    def counted(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal rounds
        rounds += 1
        if rounds > _ROUNDS:
            raise TimeoutError
        return counted

    before = sys.gettrace()
    if before is None:
        sys.settrace(counted)
    try:
        return "returned", repr(function(*inputs))
    except Exception as error:
        return "raised", type(error).__name__
    finally:
        if before is None:
            sys.settrace(None)
