"""Solutions are read by a verifier, whose verdicts go with them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rewards import failure
from posttrain.components.rollouts.verified import Verified
from posttrain.engines import Sampling
from posttrain.types import Completion, Group, Score, Task
from tests.builders import ScriptedSampler, info_of, score

TASK = Task(key="t", prompt="Q: 1+2+4\nA:", answer="SECRET")
SOLUTIONS = (" 1+2=3; 3+4=7\n#### 7", " 1+2=4; 4+4=8\n#### 8", " #### 7")
CHECKS = (" 1+2=3 +; 3+4=7 +\n#### +", " 1+2=3 -; 4+4=8 +\n#### -", " 1+2=3; 3+4=7 +; +\n#### +")


class Writer(ScriptedSampler):
    """Writes given texts in order, a token a character and one that ends."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__("writer")
        self.texts, self.read = list(texts), []

    def decode(self, token_ids: np.ndarray) -> str:
        return "".join(chr(int(i)) for i in token_ids if i > 1)

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Sampling) -> list[Completion]:
        self.read.append(self.decode(token_ids))
        texts = [self.texts.pop(0) for _ in range(n)]
        return [
            Completion(
                token_ids=np.array([*text.encode(), 0]),
                logp=np.full(len(text) + 1, -1.0, np.float32),
                stop_reason="stop",
                version=1,
                text=text,
            )
            for text in texts
        ]


def collect(
    rollout: Verified, verdict: Mapping[str, Score], checks: Sequence[str] = CHECKS
) -> tuple[list[Group], Writer]:
    """Run with scripted texts; solutions get the scores by text, verifications 0."""

    async def scorer(group: Group) -> Group:
        scores = [verdict.get(t.completion, score(0.0)) for t in group]
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, scores, strict=True)))

    verifier = Writer(checks)
    samplers = {"policy": Writer(SOLUTIONS), "verifier": verifier}
    return asyncio.run(rollout.collect_scored(TASK, samplers, scorer)), verifier


def test_the_verifier_reads_the_solution_and_not_the_answer() -> None:
    (solutions, checks), verifier = collect(Verified(n=3), {SOLUTIONS[0]: score(1.0), SOLUTIONS[2]: score(1.0)})
    assert verifier.read == [f"Q: 1+2+4\nA:{solution}\nCheck:" for solution in SOLUTIONS]
    assert not any("SECRET" in text for text in verifier.read)
    assert [t.learners for t in solutions] == [{"policy"}] * 3 and [t.learners for t in checks] == [{"verifier"}] * 3
    assert [(t.task.answer, t.task.fields["steps"]) for t in checks] == [("+", 2), ("-", 2), ("+", 1)]
    assert [t.task for t in solutions] == [TASK] * 3


def test_verdicts_go_with_the_solutions_and_malformed_ones_do_not() -> None:
    (solutions, _), _ = collect(Verified(n=3), {})
    assert [info_of(t)["verdicts"] for t in solutions] == [[1.0, 1.0], [-1.0, 1.0], []]
    # " 1+2=3;" are 7 characters; the end token belongs to the last step
    assert [info_of(t)["step_ends"] for t in solutions] == [[7, 21], [7, 21], [8]]


def test_several_verifications_are_averaged() -> None:
    checks = [" +; +\n#### +", " -; +\n#### +", "?", "?", " +\n#### -", " -\n#### -"]
    (solutions, verifications), _ = collect(Verified(n=3, checks=2), {}, checks)
    assert [info_of(t)["verdicts"] for t in solutions] == [[0.0, 1.0], [], [0.0]]
    assert [t.sample for t in verifications] == [0, 1, 2, 3, 4, 5]


def test_a_solution_that_could_not_be_scored_is_not_verified() -> None:
    (solutions, checks), verifier = collect(Verified(n=3), {SOLUTIONS[1]: failure("no grader")}, CHECKS[::2])
    assert len(checks) == len(verifier.read) == 2
    assert [info_of(t)["verdicts"] for t in solutions][1] == []


def test_a_prompt_must_show_both() -> None:
    with pytest.raises(ValidationError, match=r"must name \{problem\} and \{solution\}"):
        Verified(prompt="{solution}?")
