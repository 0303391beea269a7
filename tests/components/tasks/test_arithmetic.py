import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from posttrain.components.tasks.arithmetic import Arithmetic, solve
from posttrain.grading.expressions import evaluate, numbers_used


@pytest.mark.parametrize(
    ("expression", "steps", "result"),
    [
        ("47+35-8", ["47+35=82", "82-8=74"], 74),
        ("3+4*5-2", ["4*5=20", "3+20=23", "23-2=21"], 21),
        ("2*3*4", ["2*3=6", "6*4=24"], 24),
        ("1-9+4", ["1-9=-8", "-8+4=-4"], -4),
        ("5-2*3", ["2*3=6", "5-6=-1"], -1),
    ],
)
def test_working(expression: str, steps: list[str], result: int) -> None:
    assert solve(expression) == (steps, result)


def test_a_task_reads_as_promised() -> None:
    for task in Arithmetic(size=50, operators="+-*", terms=(2, 4)).load():
        expression = task.fields["expression"]
        steps, result = solve(expression)
        assert task.prompt == f"Q: {expression}\nA:"
        assert task.answer == str(result)
        assert task.demonstrations == (f" {'; '.join(steps)}\n#### {result}",)
        assert task.domain == f"{len(numbers_used(expression) or ())} numbers"


@settings(max_examples=60)
@given(
    terms=st.integers(2, 8),
    more_terms=st.integers(0, 4),
    digits=st.integers(1, 6),
    more_digits=st.integers(0, 6),
    operators=st.text("+-*", min_size=1, max_size=4),
    seed=st.integers(0, 2**40),
)
def test_difficulty_is_kept(
    terms: int, more_terms: int, digits: int, more_digits: int, operators: str, seed: int
) -> None:
    bounds = {"terms": (terms, terms + more_terms), "digits": (digits, digits + more_digits)}
    for task in Arithmetic(size=5, seed=seed, operators=operators, **bounds).load():
        expression = task.fields["expression"]
        written = re.findall(r"\d+", expression)
        assert terms <= len(written) <= terms + more_terms
        assert all(digits <= len(number) <= digits + more_digits for number in written)
        assert set(re.findall(r"[-+*]", expression)) <= set(operators)
        assert evaluate(expression) == int(task.answer or "")


def test_every_count_and_length_occurs() -> None:
    tasks = Arithmetic(size=300, terms=(2, 5), digits=(1, 3)).load()
    assert {task.domain for task in tasks} == {"2 numbers", "3 numbers", "4 numbers", "5 numbers"}
    assert {len(n) for t in tasks for n in re.findall(r"\d+", t.fields["expression"])} == {1, 2, 3}


def test_prompts_differ_until_there_are_no_more() -> None:
    few = Arithmetic(terms=(2, 2), digits=(1, 1), operators="+", size=130)
    prompts = [task.prompt for task in few.load()]
    assert len(set(prompts[:100])) == 100, "0+0 to 9+9 are one hundred"
    assert set(prompts[100:]) <= set(prompts[:100])
    assert len({task.key for task in few.load()}) == 130


def test_the_key_is_made_of_the_problem_not_of_its_place() -> None:
    keys = {}
    for seed in range(3):
        for task in Arithmetic(terms=(2, 2), digits=(1, 1), operators="+", size=60, seed=seed).load():
            assert keys.setdefault(task.prompt, task.key) == task.key
    assert len(set(keys.values())) == len(keys) > 60


def test_without_demonstrations() -> None:
    assert all(task.demonstrations == () for task in Arithmetic(size=5, demonstrate=False).load())


@pytest.mark.parametrize(
    "wrong",
    [{"terms": (3, 2)}, {"terms": (1, 2)}, {"digits": (0, 2)}, {"operators": ""}, {"operators": "+/"}, {"size": 0}],
)
def test_wrong_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Arithmetic(**wrong)  # type: ignore[arg-type]
