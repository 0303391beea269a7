"""Cold start: perplexity by hand, with a model that gives every token a number; form and accuracy of own answers."""

import math
from typing import Any

import numpy as np
import pytest

from posttrain.components.diagnostics import Subject, cold_start
from posttrain.components.diagnostics.cold_start import ColdStart
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.tasks.tagged import Tagged
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Completion, Task
from tests.builders import ScriptedSampler

TASKS = Tagged(tasks=WorkedSolutions(size=3))
IN_TAGS = Match(extract=("answer_tag",))


class Writer(ScriptedSampler):
    """Answers with the reference answer, in tags in a part of the tasks."""

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__("policy")
        self.answers, self.text = answers, ""

    def bind(self, *key: int | str) -> "Writer":
        found = Writer(self.answers)
        found.text = self.answers[str(key[-1])]
        return found

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        text = self.text
        ids = np.array([*text.encode()], np.int64)
        logp = np.zeros(len(ids), np.float32)
        return [Completion(token_ids=ids, logp=logp, stop_reason="stop", version=0, text=text)] * n


class Policy:
    """What the diagnostic reads of a policy."""

    def __init__(self) -> None:
        self.tokenizer, self.context = self, 400

    def encode_prompt(self, prompt: Any) -> np.ndarray:
        return np.array([*str(prompt).encode()])

    def encode_completion(self, prompt: Any, text: str) -> np.ndarray:
        return np.array([*text.encode()])


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token has a probability of 1/2 in chosen answers, 1/4 in all that have another result."""
    tasks = TASKS.load()
    rejected = {pair.rejected for task in tasks for pair in task.preferences}

    def logps(policy: Any, written: Any) -> list[np.ndarray]:
        texts = [bytes(ids[before:].tolist()).decode() for ids, before in written]
        return [np.full(len(t), math.log(0.25 if t in rejected else 0.5), np.float32) for t in texts]

    monkeypatch.setattr("posttrain.components.diagnostics._likelihoods.token_logps", logps)
    answers = {
        task.key: text
        for task, text in zip(
            tasks,
            (f"<answer>{tasks[0].answer}</answer>", "<answer>no</answer>", f"#### {tasks[2].answer}"),
            strict=True,
        )
    }
    model: Any = Subject(name="m", load=Policy, serve=lambda _: Writer(answers))  # type: ignore[arg-type,return-value]
    finding = ColdStart(tasks=TASKS, verifier=IN_TAGS).examine(model)
    assert finding.values["perplexity"]["chosen"] == {"value": pytest.approx(2.0), "texts": 3}
    assert finding.values["perplexity"]["rejected"] == {"value": pytest.approx(4.0), "texts": 3}
    assert finding.values["form"]["value"] == pytest.approx(2 / 3)
    assert finding.values["accuracy"]["value"] == pytest.approx(1 / 3)
    assert finding.lines[1] == "perplexity of a token of the chosen answers: 2.00 (3 texts)"
    assert cold_start.ROWS == (312,)


def test_mistakes() -> None:
    model: Any = Subject(name="m", load=Policy, serve=lambda _: Writer({}))  # type: ignore[arg-type,return-value]
    with pytest.raises(UserError, match="a reward requires the role"):
        ColdStart(tasks=TASKS, verifier=RewardModel()).examine(model)
    bare = WorkedSolutions(size=1)
    object.__setattr__(bare, "load", lambda: [Task(key="bare", prompt="?")])
    with pytest.raises(UserError, match="none of the 1 tasks has a preference or a demonstration"):
        ColdStart(tasks=bare, verifier=IN_TAGS).examine(model)
    object.__setattr__(bare, "load", lambda: [Task(key="long", prompt="?" * 400, demonstrations=("1",))])
    with pytest.raises(UserError, match="task long: prompt and answer have 401 tokens"):
        ColdStart(tasks=bare, verifier=IN_TAGS).examine(model)
