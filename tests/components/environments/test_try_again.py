import pytest

from posttrain.components.environments.try_again import TryAgain, normal
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.environments.playing import play, verdict_of

QUESTION = Task(key="q", prompt="?", answer="Paris")


def value(*answers: str, **settings: float) -> float:
    return verdict_of(TryAgain(**settings), QUESTION, answers).value


def test_the_first_answer_gets_one_and_each_wrong_one_before_halves_it() -> None:
    assert value("paris") == 1.0
    assert value("rome", "paris") == 0.5
    assert value("rome", "oslo", "paris") == 0.25
    assert value("rome", "oslo", "bern", "riga", "paris") == 0.0625


def test_five_times_the_same_wrong_answer() -> None:
    """lambda (1 - 1/5) = 0.4, and not 0.5."""
    assert value(*["rome"] * 5) == pytest.approx(-0.4)
    assert value("rome", "ROME ", "r ome", "rome", "oslo") == pytest.approx(-0.5 * (1 - 2 / 5))


def test_repetition_costs_those_who_are_right_at_last_too() -> None:
    """Wrong, the same again, right: 1/4 - (1/2)(1 - 2/3)."""
    assert value("rome", "rome", "paris") == pytest.approx(0.25 - 0.5 / 3)


def test_one_try_gives_zero_or_one() -> None:
    assert value("paris", tries=1) == 1.0
    assert value("rome", tries=1) == 0.0


def test_a_turn_without_an_answer_costs_a_tenth_and_a_try() -> None:
    first, outcomes, verdict, _ = play(TryAgain(tries=2), QUESTION, ["", " ", "paris"])
    assert first.text == ""
    assert [o.valid for o in outcomes] == [False, False]
    assert outcomes[-1].done
    assert verdict is not None and verdict.value == pytest.approx(-0.2), "no answer, so no repetition"
    assert value("", "paris") == pytest.approx(1.0 - 0.1), "only answers count for the discount"


def test_an_empty_turn_does_not_escape_the_penalty_for_repetition() -> None:
    """The exploit of the released code: four times the same and one empty turn were charged 0.1 only."""
    assert value("rome", "rome", "rome", "rome", "") == pytest.approx(-0.5 * (1 - 1 / 4) - 0.1)


def test_who_is_wrong_learns_so_and_the_right_answer_ends_it() -> None:
    _, outcomes, verdict, measures = play(TryAgain(), QUESTION, ["rome", "PARIS", "oslo"])
    assert (outcomes[0].observation.text, outcomes[0].done) == ("Incorrect. Please think again.", False)
    assert len(outcomes) == 2 and outcomes[1].done
    assert verdict is not None and verdict.solved
    assert measures == {"different": 1.0}


def test_the_state_is_what_was_answered_so_far() -> None:
    keys = [[o.observation.state_key for o in play(TryAgain(), QUESTION, a)[1]] for a in (["b", "a"], ["a", "b", "a"])]
    assert keys == [["b", "a b"], ["a", "a b", "a b"]]


def test_the_answer_may_stand_in_a_tag() -> None:
    tagged = TryAgain(tag="answer")
    assert verdict_of(tagged, QUESTION, ["I say <answer>Rome</answer> no, <answer> paris </answer>."]).solved
    for none in ("paris", "<answer>paris", "paris</answer>", "<answer> </answer>"):
        assert not play(tagged, QUESTION, [none])[1][0].valid


def test_answers_are_compared_without_case_and_space() -> None:
    assert normal(" The  Big\nApple ") == "thebigapple"


def test_a_question_without_an_answer_is_refused() -> None:
    with pytest.raises(UserError, match="task bare has no answer"):
        TryAgain().check([QUESTION, Task(key="bare", prompt="?", answer=" ")])
