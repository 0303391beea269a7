"""Scores of documents, one at a time: prompts, what is read as a score, and its probability."""

import asyncio
import math

import numpy as np
import pytest

from posttrain.components.rollouts import Pointwise as Facts
from posttrain.components.rollouts.pointwise import Pointwise
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Completion, Group, Task
from tests.builders import ScriptedSampler

QUERY = Task(key="q", prompt="abc: abd xyz", fields={"prompts": ["abc abd:", "abc xyz:"], "relevant": [True, False]})


class Scorer(ScriptedSampler):
    """Writes one text, each token with the log-probability -0.1 more than the one before."""

    text = " aa\n#### 10"

    def bind(self, *key: int | str) -> "Scorer":
        bound = Scorer(*self.key, *key)
        bound.text = self.text
        return bound

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        ids = np.array([*self.text.encode(), 0], np.int64)
        logp = -0.1 * np.arange(len(ids), dtype=np.float32)
        reason = "length" if len(ids) > sampling.max_tokens else "stop"
        made = Completion(token_ids=ids, logp=logp, stop_reason=reason, text=self.text, version=1)
        return [made] * n


def collected(text: str, *, n: int = 2, of: Task = QUERY) -> Group:
    policy = Scorer("policy")
    policy.text = text
    [group] = asyncio.run(Pointwise(n=n, sampling=Sampling(max_tokens=64)).collect(of, {"policy": policy}))
    return group


def fact(text: str) -> Facts:
    found = collected(text).trajectories[0].fact(Facts)
    assert found is not None
    return found


def test_every_document_has_a_prompt_of_its_own() -> None:
    group = collected(" aa\n#### 7")
    assert [t.segments[0].text for t in group] == ["abc abd:"] * 2 + ["abc xyz:"] * 2
    assert [t.sample for t in group] == [0, 1, 2, 3] and all(t.task == QUERY for t in group)
    facts = [t.fact(Facts) for t in group]
    assert [own.document for own in facts if own is not None] == [0, 0, 1, 1]
    alone = collected(" 7", of=Task(key="one", prompt="p"))
    assert [t.segments[0].text for t in alone] == ["p", "p"]


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        *((" aa\n#### 7", 7), ("#### 10", 10), ("10", 10), ("####0", 0), (" 7 \n", 7)),
        *(
            (" 11", None),
            ("7.", None),
            ("-7", None),
            ("5 or 9", None),
            ("#### 5 or 9", None),
            ("5/9", None),
            ("", None),
            ("seven", None),
        ),
        *(("x" * 70 + "\n7", None), ("007", None)),
    ],
)
def test_the_score_is_the_number_at_the_end(text: str, stated: int | None) -> None:
    assert fact(text).stated == stated


def test_its_probability_is_that_of_its_tokens() -> None:
    """The digits of 10 are the tokens 9 and 10 of the text."""
    assert fact(" aa\n#### 10").probability == pytest.approx(math.exp(-0.9 - 1.0))
    assert fact("7").probability == 1.0 and fact("none").probability == 0.0


def test_held_out_queries_have_every_document_too() -> None:
    assert Pointwise(n=8).held_out(1, Sampling(temperature=0.0)) == Pointwise(n=1, sampling=Sampling(temperature=0.0))


def test_refuses_other_prompts() -> None:
    for given in ("text", [], [1], [""]):
        with pytest.raises(UserError, match="list of texts"):
            Pointwise().check([Task(key="q", prompt="q", fields={"prompts": given})])
