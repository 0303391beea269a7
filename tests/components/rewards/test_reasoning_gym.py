import sys
from math import isnan
from typing import Any

import pytest

from posttrain.components.rewards import reasoning_gym
from posttrain.components.rewards.reasoning_gym import ReasoningGym
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import judge
from tests.libraries import needs_reasoning_gym

ENTRY = {"question": "Spell it backward, please: cat", "answer": "tac", "metadata": {}}


def task(dataset: str = "spell_backward", entry: Any = ENTRY) -> Task:
    return Task(key="gym", prompt=ENTRY["question"], answer="tac", fields={"dataset": dataset, "entry": entry})


@pytest.mark.slow
class TestWithTheLibrary:
    @pytest.fixture(autouse=True)
    def library(self) -> None:
        needs_reasoning_gym()

    def test_right_and_wrong(self) -> None:
        right = judge(ReasoningGym(), "<answer>tac</answer>", task())
        assert (right.value, right.status, right.answer) == (1.0, "ok", "tac")
        assert judge(ReasoningGym(), "<answer>cat</answer>", task()).value == 0.0

    def test_a_text_that_merely_contains_the_answer_is_not_rewarded(self) -> None:
        entry = {"question": "Which one?", "answer": "red", "metadata": {}}
        both = "<answer>red blue</answer>"
        name = default_scored()
        assert judge(ReasoningGym(), both, task(name, entry)).value == 0.0
        loose = judge(ReasoningGym(strict=False), both, task(name, entry))
        assert (loose.value, loose.status) == (3 / 8, "wrong")
        assert judge(ReasoningGym(), "<answer>red</answer>", task(name, entry)).value == 1.0

    def test_a_verifier_that_anything_pleases_is_not_believed(self) -> None:
        entry = {"question": "Will it halt?", "answer": "False", "metadata": {}}
        game = task("game_of_life_halting", entry)
        anything = judge(ReasoningGym(), "no idea", game)
        assert (anything.value, anything.status) == (0.0, "wrong")
        assert "and for any text; as texts they are not equal" in anything.explanation
        assert judge(ReasoningGym(), "<answer>false</answer>", game).value == 1.0
        assert judge(ReasoningGym(strict=False), "no idea", game).value == 1.0

    def test_a_verifier_that_raises_about_what_it_cannot_read(self) -> None:
        entry = {"question": "Factors of 12?", "answer": "2 × 2 × 3", "metadata": {"factors": [2, 2, 3]}}
        factors = task("prime_factorization", entry)
        assert judge(ReasoningGym(), "2 × 2 × 3", factors).value == 1.0
        assert judge(ReasoningGym(), "no idea", factors).status == "error"
        assert judge(ReasoningGym(raising="wrong"), "no idea", factors).status == "wrong"
        unknown = judge(ReasoningGym(raising="wrong"), "no idea", task("prime_factorisation", entry))
        assert unknown.status == "error", "a data set that is not there is no fault of the answer"

    def test_nothing_found(self) -> None:
        assert judge(ReasoningGym(extract=("boxed",)), "tac", task()).status == "wrong"

    def test_an_unknown_data_set_is_an_error(self) -> None:
        score = judge(ReasoningGym(), "tac", task("spell_backwards"))
        assert score.status == "error" and "Dataset 'spell_backwards' not registered" in score.explanation

    def test_gold_answers_of_a_data_set_are_right(self) -> None:
        import reasoning_gym as library

        for name in ("chain_sum", "rotate_matrix", "number_sorting", "word_ladder"):
            for entry in library.create_dataset(name, size=3, seed=1):
                gold = Task(key=name, prompt=entry["question"], fields={"dataset": name, "entry": entry})
                for text in (
                    f"<answer>\n{entry['answer']}\n</answer>",
                    f"I think:\n{entry['answer']}",
                    f"#### {entry['answer']}",
                ):
                    assert judge(ReasoningGym(), text, gold).status == "ok", (name, entry["answer"])


def default_scored() -> str:
    """A data set that is scored by the library's default verifier."""
    from reasoning_gym.dataset import ProceduralDataset
    from reasoning_gym.factory import DATASETS

    return next(n for n, (cls, _) in sorted(DATASETS.items()) if cls.score_answer is ProceduralDataset.score_answer)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"dataset": "chain_sum"}, {"dataset": 3, "entry": ENTRY}])
def test_a_task_of_another_kind_is_an_error(fields: dict[str, object]) -> None:
    needs_reasoning_gym()
    score = judge(ReasoningGym(), "tac", Task(key="other", prompt="What?", fields=fields))
    assert score.status == "error" and isnan(score.value)
    assert "task 'other' is not from reasoning-gym" in score.explanation


@pytest.mark.parametrize("result", [ZeroDivisionError("by zero"), float("nan"), "high"])
def test_a_verifier_that_fails_is_an_error(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def verifier(answer: str, entry: object) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(reasoning_gym, "_library", lambda: None)
    monkeypatch.setattr(reasoning_gym, "_verifier", lambda library, name: verifier)
    score = judge(ReasoningGym(time_limit=None), "tac", task())
    assert score.status == "error" and isnan(score.value) and score.answer == "tac"
    assert "the verifier of 'spell_backward'" in score.explanation


def test_a_missing_library_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[reasoning-gym\]'"):
        ReasoningGym().prepare()
    with pytest.raises(UserError, match="reasoning-gym"):
        judge(ReasoningGym(), "tac", task())
