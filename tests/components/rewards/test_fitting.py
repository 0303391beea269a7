"""Candidates beyond the context of a judge that is loaded here: their end is cut, and they are counted."""

from typing import Any

import numpy as np
import pytest

from posttrain.audit.judges.rewarded import RewardJudge, written
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.judge import Judge
from posttrain.components.rewards.preference_model import PreferenceModel
from posttrain.components.rewards.principle_logit import PrincipleLogit
from posttrain.errors import UserError
from posttrain.types import Task
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, score_all

LONG = "x" * 3000


class Small(ScriptedSampler):
    """A model of few tokens, each a character, that refuses more."""

    context = 900

    def __init__(self) -> None:
        super().__init__("judge")
        self.read: list[str] = []

    def encode(self, prompt: Any) -> np.ndarray:
        return super().encode(prompt if isinstance(prompt, str) else prompt[0]["content"])

    async def logp(self, token_ids: np.ndarray, **_: Any) -> np.ndarray:
        if len(token_ids) > self.context:
            raise UserError("too many")
        self.read.append(self.decode(token_ids))
        return np.full(len(token_ids) - 1, -1.0, np.float32)

    async def write(self, prompt: Any, n: int, sampling: Any) -> list[str]:
        self.read.append(self.decode(self.encode(prompt)))
        return ["Score: 5"] * n


@pytest.mark.parametrize(
    ("reward", "answers"),
    [
        (PrincipleLogit(), ["short", LONG]),
        (PreferenceModel(), ["short", LONG]),
        (Judge(template="{completion} Score it.", chat=True), ["short", LONG]),
    ],
    ids=lambda one: getattr(one, "kind", ""),
)
def test_what_is_beyond_the_context_is_cut_at_its_end_and_counted(reward: Any, answers: list[str]) -> None:
    model = Small()
    scores = score_all(reward, *map(attempt, answers), context=RewardContext(samplers={"judge": model}))
    assert [s.parts["cut"].value for s in scores] == [0.0, 1.0], [s.explanation for s in scores]
    assert {s.status for s in scores} <= {"ok", "wrong"}
    lengths = [len(model.encode(text)) for text in model.read if "xxx" in text]
    assert lengths and max(lengths) <= model.context and "<<<end" in max(model.read, key=len), "the mark is kept"
    kept = max(text.count("x") for text in model.read)
    assert 100 < kept < 900


def test_a_prompt_that_leaves_no_room_at_all_is_refused() -> None:
    model = Small()
    model.context = 50
    with pytest.raises(UserError, match="too many"):
        score_all(PrincipleLogit(), attempt("a"), context=RewardContext(samplers={"judge": model}))


def test_an_answer_to_a_judge_of_the_command_line_is_cut_and_counted() -> None:
    model = Small()
    judge = RewardJudge(
        name="own", reward=PrincipleLogit(), samplers=lambda _: {"judge": model}, local=frozenset({"judge"})
    )
    task = Task(key="k", prompt="q")
    scores = judge.scores(task, ("short", LONG))
    assert {s.status for s in scores} <= {"ok", "wrong"} and judge.cut == {("k", LONG)}
    with pytest.raises(UserError, match=r"the prompt has .* leaves no room for an answer; shorten it"):
        written(Task(key="k", prompt=LONG), 0, "a", model)
