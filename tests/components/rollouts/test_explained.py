"""Explanations: what is shown, what is learned, and where there is nothing to learn."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rollouts.explained import Explained
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Completion, Group, Score, Task
from tests.builders import ScriptedSampler, info_of, score, task

SUM = task("sum", prompt="2+2=", answer="4")
SHORT = Explained(n=3, request="[{answer}] {question}")


class Writer(ScriptedSampler):
    """Writes these explanations where the prompt shows the answer, and remembers all prompts and settings."""

    def __init__(self, *explanations: str) -> None:
        super().__init__("policy")
        self.explanations = iter(explanations)
        self.asked_for: list[tuple[str, int, Sampling]] = []

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        self.asked_for.append((bytes(int(i) for i in token_ids if i > 1).decode(), n, sampling))
        if "[4]" not in self.asked_for[-1][0]:
            return await super().sample(token_ids, n, sampling, vectors)
        text = next(self.explanations)
        ids = np.array([*text.encode()], np.int64)
        cut = text.partition(sampling.stop[-1])[0]
        return [Completion(token_ids=ids, logp=np.zeros(len(ids), np.float32), stop_reason="stop", version=3, text=cut)]


def collected(
    rollout: Explained, grades: Sequence[float | None], *explanations: str, of: Task = SUM
) -> tuple[list[Group], Writer, list[int]]:
    """The groups, the policy, and how many rollouts were scored at a time; None is a failed score."""
    policy, values, sizes = Writer(*explanations), iter(grades), list[int]()

    async def scorer(group: Group) -> Group:
        sizes.append(len(group))
        given = [next(values) for _ in group]
        scores = [Score(value=math.nan, status="error") if g is None else score(g) for g in given]
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, scores, strict=True)))

    return asyncio.run(rollout.collect_scored(of, {"policy": policy}, scorer)), policy, sizes


def test_the_answer_is_shown_to_who_explains_and_not_to_who_learns() -> None:
    groups, policy, sizes = collected(SHORT, [0, 0, 1, 1], " two and two ####")
    own, [explanation] = groups
    assert sizes == [3, 1] and [t.sample for t in own] == [0, 1, 2]
    assert [(prompt, n) for prompt, n, _ in policy.asked_for] == [("2+2=", 3), ("[4] 2+2=", 1)]
    assert policy.asked_for[1][2] == replace(SHORT.sampling, stop=("####",))
    first, second = explanation.segments
    assert first is own.trajectories[0].segments[0] and b"4" not in bytes(first.token_ids.tolist())
    assert bytes(second.token_ids.tolist()) == b" two and two #### 4\0", "the answer, and the end token"
    assert second.text == " two and two #### 4"
    assert (explanation.sample, explanation.stop_reason) == (3, "stop")
    assert info_of(explanation) == {"explained": "[4] 2+2="}


def test_it_is_a_demonstration_in_a_group_of_its_own() -> None:
    (own, other), _, _ = collected(SHORT, [0, 0, 1, 1], "so ####")
    [explanation] = other
    assert explanation.given and explanation.learners == {"policy"}
    assert np.isnan(explanation.behavior_logp).all() and explanation.num_trained == len("so #### 4") + 1
    assert own.key == other.key == "sum"
    assert own.solved == pytest.approx(1 / 3) and own.rewards.tolist() == [0, 0, 1]


def test_only_where_every_rollout_failed() -> None:
    unsolved = replace(SHORT, when="unsolved")
    groups, policy, _ = collected(unsolved, [0, 0, 1], "never asked for ####")
    assert len(groups) == 1 and len(policy.asked_for) == 1
    groups, _, _ = collected(unsolved, [0, None, 0, 1], "so ####")
    assert len(groups) == 2
    groups, policy, _ = collected(unsolved, [None, None, None], "never asked for ####")
    assert len(groups) == 1 and len(policy.asked_for) == 1, "nothing is known of it"


@pytest.mark.parametrize("written", ["", "no end in sight", "#### 5 and on\0"])
def test_one_that_does_not_come_to_the_marker_is_not_learned(written: str) -> None:
    groups, _, sizes = collected(SHORT, [0, 0, 0], written)
    assert len(groups) == 1 and sizes == [3]


def test_what_does_not_fit_is_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    long = replace(SHORT, sampling=Sampling(max_tokens=4))
    monkeypatch.setattr(ScriptedSampler, "context", 5 + len("so #### 4") + 1)
    assert len(collected(long, [0, 0, 0, 1], "so ####")[0]) == 2
    monkeypatch.setattr(ScriptedSampler, "context", 5 + len("so #### 4"))
    assert len(collected(long, [0, 0, 0], "so ####")[0]) == 1
    monkeypatch.setattr(ScriptedSampler, "context", len("[4] 2+2=") + 1)
    groups, policy, _ = collected(long, [0, 0, 0])
    assert len(groups) == 1 and len(policy.asked_for) == 1, "no room to explain in"


def test_messages_keep_their_form() -> None:
    of = Task(key="chat", prompt=({"role": "system", "content": "Be."}, {"role": "user", "content": "2+2"}), answer="4")
    groups, policy, _ = collected(SHORT, [0, 0, 0, 1], "so ####", of=of)
    assert [prompt for prompt, *_ in policy.asked_for] == ["system: Be.\nuser: 2+2\n", "system: Be.\nuser: [4] 2+2\n"]
    assert groups[1].trajectories[0].task == of


def test_the_marker_is_a_setting_and_stops_are_kept() -> None:
    rollout = replace(SHORT, marker="so:", sampling=Sampling(stop=("\n",), temperature=0.5))
    groups, policy, _ = collected(rollout, [0, 0, 0, 1], "2, 2, so:")
    assert groups[1].trajectories[0].completion == "2, 2, so: 4"
    assert [sampling.stop for *_, sampling in policy.asked_for] == [("\n",), ("\n", "so:")]
    assert rollout.temperature == 0.5 and Explained(sampling=Sampling(temperature=0)).temperature == 1.0


def test_a_request_shows_question_and_answer() -> None:
    for request, told in (("{question}?", "needs {answer}"), ("{answer}", "needs {question}"), ("", "{question} and ")):
        with pytest.raises(ValidationError, match=told.replace("{", r"\{").replace("}", r"\}")):
            Explained(request=request)
    with pytest.raises(ValidationError, match="did you mean 'answer'"):
        Explained(request="{question} {answer} {answr}")


def test_answers_are_needed_to_be_shown() -> None:
    with pytest.raises(UserError, match=r"1 of 2 tasks have none \(the first: b\)"):
        Explained().check([task("a"), task("b", answer=None)])
    Explained().check([task("a")])
