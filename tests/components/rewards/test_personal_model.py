"""The score for a user: which texts are read, bounded scores by hand, and what is an error."""

import math

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.personal_model import PersonalModel
from posttrain.errors import UserError
from posttrain.types import Segment, Task, Trajectory
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import score_all

PAIRS = [{"prompt": "p", "chosen": "aa", "rejected": "b"}]
TASK = Task(key="k", prompt="q", fields={"context": PAIRS})


def attempt(text: str, task: Task) -> Trajectory:
    """A rollout with the ids of its text."""
    segments = [Segment(actor="prompt", token_ids=np.array([1, 113]), text="q")]
    ids = np.array([*text.encode(), 0])
    segments.append(Segment(actor="policy", token_ids=ids, trained=True, text=text))
    return Trajectory(task=task, segments=tuple(segments), stop_reason="stop")


class Letters(ScriptedSampler):
    """Scores by the letters that the last text has of the first chosen text, and keeps what it read."""

    def __init__(self) -> None:
        super().__init__("reward")
        self.seen: list[list[str]] = []

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        texts = bytes(int(i) for i in token_ids if i != 1).decode().rstrip("\0").split("\0")
        self.seen.append(texts)
        return float(texts[-1].count("a"))


def test_pairs_of_the_user_are_read_before_the_text() -> None:
    sampler = Letters()
    found = score_all(PersonalModel(), attempt("aaa", TASK), context=RewardContext(samplers={"reward": sampler}))
    assert [s.value for s in found] == [3.0] and sampler.seen[0][:2] == ["paa", "pb"]


def test_a_request_is_read_in_place_of_a_prompt_that_names_the_user() -> None:
    sampler = Letters()
    task = Task(key="k", prompt="For kim:", fields={"context": PAIRS, "request": "q"})
    score_all(PersonalModel(), attempt("aaa", task), context=RewardContext(samplers={"reward": sampler}))
    assert sampler.seen == [["paa", "pb", "qaaa"]]


def test_bounded_scores_are_the_mean_probability_to_be_preferred() -> None:
    """Texts of the pairs score 2 and 0: a text of 3 is preferred with sigmoid(1) and sigmoid(3)."""
    [found] = score_all(
        PersonalModel(bounded=True), attempt("aaa", TASK), context=RewardContext(samplers={"reward": Letters()})
    )
    assert found.value == pytest.approx((1 / (1 + math.exp(-1)) + 1 / (1 + math.exp(-3))) / 2)


def test_what_is_an_error() -> None:
    context = RewardContext(samplers={"reward": Letters()})
    [bare] = score_all(PersonalModel(), attempt("a", Task(key="k", prompt="q")), context=context)
    assert bare.status == "error" and "where a list of pairs of its user is needed" in bare.explanation
    empty = Task(key="k", prompt="q", fields={"context": []})
    [alone] = score_all(PersonalModel(bounded=True), attempt("a", empty), context=context)
    assert alone.status == "error" and "has no pairs to compare with" in alone.explanation
    [plain] = score_all(PersonalModel(), attempt("aa", empty), context=context)
    assert plain.value == 2.0
    long = Task(key="k", prompt="q", fields={"context": [{**PAIRS[0], "chosen": "a" * 5000}]})
    [cut] = score_all(PersonalModel(), attempt("a", long), context=context)
    assert cut.status == "error" and "exceed its context" in cut.explanation
    with pytest.raises(UserError, match="its user has no pairs"):
        PersonalModel(bounded=True).check([empty])
    PersonalModel().check([empty])
