import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from posttrain.components.tasks.countdown import Countdown
from posttrain.grading.expressions import evaluate, numbers_used


@settings(max_examples=60)
@given(
    fewest=st.integers(2, 6),
    more=st.integers(0, 2),
    largest=st.integers(2, 200),
    seed=st.integers(0, 2**40),
)
def test_every_task_is_solved_by_its_answer(fewest: int, more: int, largest: int, seed: int) -> None:
    bounds = (fewest, fewest + more)
    for task in Countdown(size=4, seed=seed, numbers=bounds, largest=largest, largest_target=150).load():
        numbers, target = task.fields["numbers"], task.fields["target"]
        assert fewest <= len(numbers) <= fewest + more
        assert all(1 <= number <= largest for number in numbers) and 1 <= target <= 150
        assert evaluate(task.answer or "") == target
        assert sorted(numbers_used(task.answer or "") or ()) == sorted(numbers)


def test_the_working_is_right_and_uses_what_is_left() -> None:
    for task in Countdown(size=200, numbers=(2, 6)).load():
        [demonstration] = task.demonstrations
        working, solution = demonstration.split("\n#### ")
        left = sorted(task.fields["numbers"])
        for step in working.strip().split("; "):
            expression, result = step.split("=")
            assert evaluate(expression) == int(result) > 0
            for number in numbers_used(expression) or ():
                left.remove(number)
            left.append(int(result))
        assert left == [task.fields["target"]]
        assert solution == task.answer


def test_the_prompt_states_all_that_is_needed() -> None:
    task = Countdown(size=1).load()[0]
    given = " ".join(map(str, task.fields["numbers"]))
    assert isinstance(task.prompt, str)
    assert task.prompt.startswith(f"Numbers: {given}\nTarget: {task.fields['target']}\n")


def test_all_operators_and_brackets_are_needed_somewhere() -> None:
    answers = "".join(task.answer or "" for task in Countdown(size=200).load())
    assert set("+-*/()") <= set(answers)


def test_prompts_differ_while_there_are_more() -> None:
    assert len({task.prompt for task in Countdown(size=500).load()}) == 500
    few = Countdown(size=80, numbers=(2, 2), largest=2).load()
    assert len({task.prompt for task in few}) == 10, "targets of 1 1; 1 2; 2 1; 2 2 are 1 2; 1 2 3 twice; 1 4"
    assert len({task.key for task in few}) == 80


def test_wrong_settings() -> None:
    for wrong in (
        {"largest": 2, "differ": True},
        {"numbers": (4, 3)},
        {"numbers": (1, 3)},
        {"largest": 1},
        {"largest_target": 0},
    ):
        with pytest.raises(ValidationError):
            Countdown(**wrong)  # type: ignore[arg-type]


def test_operators_and_different_numbers() -> None:
    for task in Countdown(size=50, numbers=(3, 4), largest=5, operators="+-", differ=True).load():
        assert len(set(task.fields["numbers"])) == len(task.fields["numbers"])
        assert not set("*/") & set(str(task.answer))
        assert "with + - and brackets" in str(task.prompt)
