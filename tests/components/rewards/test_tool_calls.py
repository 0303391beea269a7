"""ToolRL's reward: a second writing of its formula, variants, schedules, cheats with their exact values."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.tool_calls import ToolCalls, matched
from posttrain.grading.strict_json import BadJSON, read_json
from posttrain.grading.tool_layout import ToolCall, has_layout, read_reference
from posttrain.types import Score, Task
from tests.components.rewards.judging import attempt, judge, score_all

CALL = {"name": "f", "parameters": {"a": 1, "b": 2}}
OTHER: dict[str, Any] = {"name": "g", "parameters": {}}


def text(*calls: Any, thought: str = "so") -> str:
    lines = "\n".join(call if isinstance(call, str) else json.dumps(call) for call in calls)
    return f"<think>{thought}</think>\n<tool_call>\n{lines}\n</tool_call>"


def task(*calls: Any) -> Task:
    return Task(key="t", prompt="Call.", answer="\n".join(map(json.dumps, calls)))


def value(completion: str, of: Task, step: int = 0, **settings: Any) -> float:
    (score,) = score_all(ToolCalls(**settings), attempt(completion, of), context=RewardContext(step=step))
    return score.value


def second_writing(predicted: list[dict[str, Any]], gold: list[dict[str, Any]]) -> float:
    """R_correct by the sheet, written from its lines alone."""

    def jaccard(a: list[str], b: list[str]) -> float:
        if not a and not b:
            return 1.0
        rest, common = list(b), 0
        for name in a:
            if name in rest:
                rest.remove(name)
                common += 1
        return common / (len(a) + len(b) - common) if a and b else 0.0

    if predicted == gold:
        return 3.0
    s, top, used = jaccard([c["name"] for c in predicted], [c["name"] for c in gold]), 1.0, set()
    for want in gold:
        top += 1 + len(want["parameters"])
        best, where = 0.0, None
        for i, call in enumerate(predicted):
            if i in used or call["name"] != want["name"]:
                continue
            found = jaccard(list(call["parameters"]), list(want["parameters"]))
            for key in want["parameters"]:
                if key in call["parameters"] and call["parameters"][key] == want["parameters"][key]:
                    found += 1
            if found > best:
                best, where = found, i
        if where is not None:
            used.add(where)
            s += best
    return 6 * s / top - 3


@pytest.mark.slow
def test_it_equals_a_second_writing_on_random_cases() -> None:
    rng = Random(0)

    def calls(count: int) -> list[dict[str, Any]]:
        return [
            {
                "name": rng.choice("fg"),
                "parameters": {k: rng.randint(1, 2) for k in rng.sample("abc", rng.randint(0, 3))},
            }
            for _ in range(count)
        ]

    for _ in range(3000):
        gold = calls(rng.randint(1, 3))
        predicted = rng.choice([calls(rng.randint(1, 4)), gold, gold[::-1], gold[:-1] or gold])
        got = value(text(*predicted), task(*gold))
        assert got == pytest.approx(1.0 + second_writing(predicted, gold)), (predicted, gold)


def test_the_parts_by_hand() -> None:
    """One call of two parameters: the most is 1 + 1 + 2 = 4."""
    wrong_value = {"name": "f", "parameters": {"a": 1, "b": 3}}
    missing = {"name": "f", "parameters": {"a": 1}}
    assert value(text(CALL), task(CALL)) == 4.0
    assert value(text(wrong_value), task(CALL)) == pytest.approx(1 + 6 * 3 / 4 - 3)
    assert value(text(missing), task(CALL)) == pytest.approx(1 + 6 * (1 + 0.5 + 1) / 4 - 3)
    assert value(text(OTHER), task(CALL)) == pytest.approx(1 - 3)
    assert value(text(OTHER, CALL), task(CALL, OTHER)) == 4.0, "calls have no order"
    found = judge(ToolCalls(), text(CALL), task(CALL))
    assert found.status == "ok" and {n: p.value for n, p in found.parts.items()} == {"format": 1.0, "correct": 3.0}


def test_matching_is_greedy_in_the_order_of_the_reference() -> None:
    """The first wanted call takes the only call that the second one needs; the best assignment would have 2 more."""
    gold = [ToolCall(name="f", parameters={"a": 1}), ToolCall(name="f", parameters={"a": 1, "b": 2})]
    calls = [ToolCall(name="f", parameters={"a": 1, "b": 2}), ToolCall(name="f", parameters={"c": 0})]
    # names 1; the first: both share a, J = 1/2 and one value; the second: what is left shares nothing
    assert matched(calls, gold, "fine", False) == pytest.approx((1 + 1.5) / (1 + 2 + 3))


@pytest.mark.parametrize(
    ("name", "completion", "of", "expected"),
    [
        ("a call too many, no parameters", text(OTHER, OTHER), task(OTHER), 4 - 6 * 0.5 / 2),
        ("a call too many, two parameters", text(CALL, OTHER), task(CALL), 4 - 6 * 0.5 / 4),
        ("a second block", text(CALL) + "\n" + text(CALL), task(CALL), 3.0),
        ("a list on a line", text(f"[{json.dumps(CALL)}]"), task(CALL), 1 - 3),
        ("true for 1", text({"name": "f", "parameters": {"a": True, "b": 2}}), task(CALL), 1 + 6 * 3 / 4 - 3),
        ("1.0 for 1", text({"name": "f", "parameters": {"a": 1.0, "b": 2}}), task(CALL), 1 + 6 * 3 / 4 - 3),
        ("a bad line", text(CALL, "and that is all"), task(CALL), 1 - 3),
        ("a key twice", text('{"name": "f", "parameters": {"a": 1, "a": 1, "b": 2}}'), task(CALL), 1 - 3),
        ("NaN", text('{"name": "f", "parameters": {"a": NaN, "b": 2}}'), task(CALL), 1 - 3),
        ("no layout", json.dumps(CALL), task(CALL), 0 - 3),
        ("a call without a thought", text(CALL).partition("\n")[2], task(CALL), 3.0),
        ("nothing", "", task(CALL), -3.0),
    ],
)
def test_cheats_have_these_values(name: str, completion: str, of: Task, expected: float) -> None:
    found = judge(ToolCalls(), completion, of)
    assert found.value == pytest.approx(expected), name
    assert found.status == "wrong"


def test_no_tool_is_wanted() -> None:
    said = Task(key="t", prompt="Hello.", answer="<think>so</think>\n<response>Hello.</response>")
    assert value("<think>x</think>\n<response>Hi.</response>", said) == 1.0
    assert value(text(CALL), said) == 0.0
    assert value("<think>x</think>\n<response>Hi.</response>", replace(said, answer="Hello.")) == 1.0


def test_variants() -> None:
    gold = task(CALL, OTHER)
    half = text(CALL, {"name": "g", "parameters": {"x": 1}})
    assert value(half, gold) == pytest.approx(1 + 6 * (1 + 3 + 0) / 5 - 3)
    assert value(half, gold, match="intermediate") == pytest.approx(1 + 6 * (1 + 1) / 3 - 3)
    assert value(half, gold, match="coarse") == -2.0 and value(text(OTHER, CALL), gold, match="coarse") == 4.0
    assert value(half, gold, low=-1.0, high=1.0) == pytest.approx(1 + 2 * 4 / 5 - 1)
    swapped = text({"name": "f", "parameters": {"b": 2, "a": 1}}, {"name": "g", "parameters": {"x": 1}})
    assert value(swapped, gold) == value(half, gold)
    assert value(swapped, gold, ordered=True) == pytest.approx(1 + 6 * (1 + 2) / 5 - 3)


@pytest.mark.parametrize(
    ("schedule", "step", "right", "unformed", "wrong"),
    [
        ("none", 0, 4.0, 3.0, -2.0),
        ("two_stage", 29, 2.0, 1.0, 0.0),
        ("two_stage", 30, 3.5, 3.0, -2.5),
        ("smooth", 0, 4.0, 0.0, 0.0),
        ("smooth", 75, 1.5 + 2.5, 2.5 - 1.0, 1.5 - 2.5),
        ("smooth", 150, 4.0, 3.0 - 1.0, 1.0 - 3.0),
        ("smooth", 900, 4.0, 2.0, -2.0),
    ],
)
def test_schedules(schedule: str, step: int, right: float, unformed: float, wrong: float) -> None:
    """A wrong layout costs 1 at the end of the smooth schedule: its least format reward is -1, not 0."""
    bare = text(CALL).partition("\n")[2]
    found = [value(t, task(CALL), step, schedule=schedule) for t in (text(CALL), bare, text(OTHER))]
    assert found == pytest.approx([right, unformed, wrong])


def test_the_length_of_the_thought() -> None:
    long, short = text(CALL, thought="word " * 600), text(CALL, thought="word " * 256)
    assert value(long, task(CALL), length=True) == 5.0
    assert value(short, task(CALL), length=True) == 4.5
    assert value(short, task(CALL), 105, length=True, length_grows=True) == pytest.approx(4 + 0.4)


@pytest.mark.parametrize(
    "answer",
    [
        '{"name": "f", "parameters": {"a": 1}}',
        '[{"name": "f", "arguments": {"a": 1}}]',
        "f(a=1)",
        '[{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}]',
        '<think>so</think>\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    ],
)
def test_references_in_several_forms(answer: str) -> None:
    found = read_reference(answer)
    assert found.calls == (ToolCall(name="f", parameters={"a": 1}),) and found.layout == ("think", "tool_call")


def test_a_task_without_an_answer_or_with_unreadable_calls_is_an_error() -> None:
    for answer in (None, "", "<tool_call>\nf(\n</tool_call>"):
        found: Score = judge(ToolCalls(), text(CALL), Task(key="t", prompt="?", answer=answer))
        assert found.status == "error", answer


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', "[NaN]", "[-Infinity]", "[" * 65 + "]" * 65, "{", "", "1 2", "1" * 5000, "[" * 99_999]
)
def test_strict_json_refuses(text: str) -> None:
    with pytest.raises(BadJSON):
        read_json(text)


def test_strict_json_reads_brackets_in_texts() -> None:
    assert read_json('{"a": "' + "[" * 99 + '\\"{"}') == {"a": "[" * 99 + '"{'}
    assert read_json("[" * 64 + "]" * 64)


def test_layouts() -> None:
    assert has_layout("<think>a</think>", ("think",)) and not has_layout("<think>a</think> ", ("think",))
    assert not has_layout("<think>a</think><response>b</response>", ("think", "response"))
    assert not has_layout("<think>a<think></think>", ("think",)) and not has_layout("", ("think",))
    assert has_layout("<think>\na\n</think>\n<response>b</response>", ("think", "response"))
