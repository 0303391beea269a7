import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.referenced_model import ReferencedModel
from posttrain.types import Task
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, score_all

TASK = Task(key="k", prompt="Q", answer="aab")


class Likeness(ScriptedSampler):
    """Scores by letters that candidate and reference share at their places, and keeps what it read."""

    def __init__(self) -> None:
        super().__init__("reward")
        self.seen: list[str] = []

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        text = self.decode(token_ids)
        self.seen.append(text)
        before, candidate = text.split("|")
        return float(sum(x == y for x, y in zip(before.split("\n")[1], candidate.split("\n")[1], strict=False)))


def test_the_reference_decides() -> None:
    """Another reference reverses the order of the same two completions."""
    found = {}
    for reference in ("aab", "bba"):
        sampler = Likeness()
        context = RewardContext(samplers={"reward": sampler})
        rollouts = [
            attempt(text, Task(key="k", prompt="q", answer=reference)) for text in ("aaa", "<think>x</think>bbb")
        ]
        found[reference] = [s.value for s in score_all(ReferencedModel(separator="|"), *rollouts, context=context)]
        assert sampler.seen[1].startswith(f"q\n{reference}|q\nbbb")
    assert found == {"aab": [2.0, 1.0], "bba": [1.0, 2.0]}


def test_a_score_is_raw_and_a_missing_reference_an_error() -> None:
    context = RewardContext(samplers={"reward": Likeness()})
    reward = ReferencedModel(separator="|", correct_at=3.0)
    equal, bare = score_all(reward, attempt("aab", TASK), attempt("aab", Task(key="k", prompt="q")), context=context)
    assert (equal.value, equal.status) == (3.0, "ok")
    assert bare.status == "error" and "no reference" in bare.explanation


def test_what_the_context_cannot_hold_is_an_error() -> None:
    sampler = Likeness()
    long = attempt("aab", Task(key="k", prompt="q", answer="a" * (sampler.context + 1)))
    [found] = score_all(
        ReferencedModel(longest_answer=10**6, longest=10**7), long, context=RewardContext(samplers={"reward": sampler})
    )
    assert found.status == "error" and "smaller reward.longest" in found.explanation
    with pytest.raises(Exception, match="reward"):
        score_all(ReferencedModel(), attempt("aab", TASK), context=RewardContext())
