import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.refinements import Refinements
from posttrain.datasets.templates import Critiques
from posttrain.errors import UserError

TEXTS = Critiques(
    right_revealed="ok {answer}", wrong_revealed="no {answer}", refinement="{question}{attempt}|{critique}|"
)
SUMS = Arithmetic(size=200, terms=(2, 2))


def test_an_exercise_shows_a_made_up_rollout_and_requests_the_correct_one() -> None:
    rights = 0
    for sum_, task in zip(SUMS.load(), Refinements(of=SUMS, texts=TEXTS).load(), strict=True):
        shown, critique, rest = str(task.prompt).removeprefix(str(sum_.prompt)).split("|")
        right = shown == sum_.demonstrations[0]
        rights += right
        assert critique == f"{'ok' if right else 'no'} {sum_.answer}" and rest == ""
        assert shown.rpartition("#### ")[0] == sum_.demonstrations[0].rpartition("#### ")[0], "the working stays"
        assert (shown.rpartition("#### ")[2] == sum_.answer) == right
        assert task.demonstrations == sum_.demonstrations and task.answer == sum_.answer
    assert 30 < rights < 75, "about a quarter, and chance hits"


def test_a_bare_rollout_is_the_answer_alone() -> None:
    for sum_, task in zip(SUMS.load(), Refinements(of=SUMS, texts=TEXTS, bare=True, right=1.0).load(), strict=True):
        assert task.prompt == f"{sum_.prompt} #### {sum_.answer}|ok {sum_.answer}|"


def test_the_seed_decides() -> None:
    first, again, other = (Refinements(of=SUMS, texts=TEXTS, seed=seed).load() for seed in (0, 0, 1))
    assert first == again != other


def test_what_has_no_demonstration_cannot_be_refined() -> None:
    with pytest.raises(UserError, match="no answer or no demonstration"):
        Refinements(of=Arithmetic(size=3, demonstrate=False)).load()
