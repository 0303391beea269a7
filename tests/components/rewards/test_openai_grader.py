"""Graders in OpenAI's JSON format."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from posttrain.components.rewards import Reward
from posttrain.components.rewards.openai_grader import OpenAIGrader
from posttrain.types import Score, Task
from tests.components.rewards.judging import judge
from tests.components.rewards.programs import tier_for

ROW = Task(key="row", prompt="Capital of France?", answer="Paris", fields={"city": {"name": "Paris"}})


def graded(text: str, **grader: Any) -> Score:
    return judge(TypeAdapter(Reward).validate_python({"kind": "openai_grader", "name": "mine", **grader}), text, ROW)


@pytest.mark.parametrize(
    ("operation", "values"),
    [("eq", [1, 0, 0]), ("ne", [0, 1, 1]), ("like", [1, 0, 1]), ("ilike", [1, 1, 1])],
)
def test_string_checks(operation: str, values: list[float]) -> None:
    grader = {"type": "string_check", "operation": operation, "reference": "{{item.city.name}}"}
    texts = ("Paris", "paris", "It is Paris.")
    assert [graded(text, input="{{ sample.output_text }}", **grader).value for text in texts] == values


@pytest.mark.parametrize(
    ("metric", "text", "value"),
    [
        ("fuzzy_match", "Pari", 8 / 9),
        ("fuzzy_match", "Paris", 1.0),
        ("fuzzy_match", "", 0.0),
        ("rouge_1", "paris, france", 2 / 3),
        ("rouge_2", "paris", 0.0),
        ("rouge_l", "it is Paris", 1 / 2),
    ],
)
def test_similarities_worked_out_by_hand(metric: str, text: str, value: float) -> None:
    score = graded(text, type="text_similarity", evaluation_metric=metric, pass_threshold=0.6)
    assert score.value == pytest.approx(value)
    assert score.status == ("ok" if value >= 0.6 else "wrong")


def test_order_and_repetition_in_rouge() -> None:
    grader = {"type": "text_similarity", "reference": "a b c d"}
    assert graded("b a c d", evaluation_metric="rouge_l", **grader).value == pytest.approx(3 / 4)
    assert graded("b a c d", evaluation_metric="rouge_2", **grader).value == pytest.approx(1 / 3)
    assert graded("a a a a", evaluation_metric="rouge_1", **grader).value == pytest.approx(1 / 4)


def test_a_part_that_the_completion_lacks_is_wrong_and_a_column_is_an_error() -> None:
    json_input = "{{ sample.output_json.name }}"
    assert graded('{"name": "Paris"}', type="string_check", input=json_input).status == "ok"
    assert graded("Paris", type="string_check", input=json_input).status == "wrong"
    missing = graded("Paris", type="string_check", reference="{{ item.town }}")
    assert missing.status == "error" and "has no item.town" in missing.explanation


@pytest.mark.parametrize(
    "grader",
    [
        {"type": "score_model"},
        {"type": "text_similarity", "evaluation_metric": "cosine"},
        {"type": "string_check", "input": "{{ row.x }}"},
    ],
)
def test_what_is_not_well_defined_is_refused(grader: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        graded("Paris", **grader)


def test_the_kind_is_the_class() -> None:
    assert Reward.find("openai_grader") is OpenAIGrader


GRADE = """
def grade(sample, item):
    print("noise")
    return 1.0 if sample["output_text"].strip() == item["reference_answer"] else 0.25
"""


def python_grader(source: str, **more: Any) -> dict[str, Any]:
    return {"type": "python", "source": source, "weakest": tier_for(), **more}


def test_python_graders_run_in_the_sandbox() -> None:
    right, wrong = (graded(text, **python_grader(GRADE, image_tag="2025-05-08")) for text in (" Paris ", "Rome"))
    assert (right.value, right.status, wrong.value, wrong.status) == (1.0, "ok", 0.25, "wrong")
    found = f"import os\ndef grade(sample, item): return float(os.path.exists({__file__!r}))"
    assert graded("x", **python_grader(found)).value == 0.0, "it sees no file of this machine"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def grade(sample, item): return 1 / 0", "ZeroDivisionError"),
        ("def grade(sample, item): return None", "TypeError"),
        ("def grade(sample, item): return float('nan')", "grade"),
        ("def other(sample, item): return 1.0", "KeyError"),
    ],
)
def test_a_python_grader_that_fails_is_an_error_and_no_zero(source: str, why: str) -> None:
    score = graded("Paris", **python_grader(source))
    assert score.status == "error" and why in score.explanation


def test_multi_graders_by_hand() -> None:
    graders = {
        "right": {"type": "string_check", "operation": "ilike"},
        "near": {"type": "text_similarity", "evaluation_metric": "fuzzy_match"},
    }
    multi = {"type": "multi", "graders": graders, "calculate_output": "0.5 * right + max(near, 0.25) ^ 2 / 2"}
    exact, other = graded("Paris", **multi), graded("zzz", **multi)
    assert (exact.value, exact.status) == (1.0, "ok")
    assert other.value == pytest.approx(0.25**2 / 2) and other.status == "wrong"
    assert exact.parts["right"].value == 1.0
    broken = {**graders, "near": {"type": "string_check", "reference": "{{ item.town }}"}}
    assert graded("Paris", **{**multi, "graders": broken}).status == "error"
    assert graded("zzz", **{**multi, "calculate_output": "1 / right"}).status == "error"


@pytest.mark.parametrize(
    "formula", ["right + other", "right.real", "__import__('os')", "[right]", "right if right else 0", "exp(1, 2)", ""]
)
def test_formulas_are_arithmetic_alone(formula: str) -> None:
    with pytest.raises(ValidationError):
        graded("Paris", type="multi", graders={"right": {"type": "string_check"}}, calculate_output=formula)


def test_parts_of_other_types_are_refused() -> None:
    for wrong in ({"type": "python"}, {"type": "multi"}, {"type": "string_check", "source": GRADE}):
        with pytest.raises(ValidationError):
            graded("Paris", **wrong)
