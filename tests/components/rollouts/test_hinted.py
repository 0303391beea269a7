"""A ladder of hints: when it is climbed, what is in the prompt, and what is learned from."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rollouts.hinted import Hinted
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.stages.rl.metrics import hint_metrics
from posttrain.types import Completion, Group, Score, Task
from tests.builders import ScriptedSampler, info_of, score

SUM = Task(key="sum", prompt="2+2+3=", answer="7", demonstrations=("2+2=4; 4+3=7",))
SHORT = Hinted(n=2, request="{question}|{hint}")


class Writer(ScriptedSampler):
    """Remembers the prompts; those that are bound to it share the list."""

    asked_for: list[str]

    def bind(self, *key: int | str) -> "Writer":
        found = Writer(*self.key, *key, log=self.completions)
        found.asked_for = self.asked_for
        return found

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        self.asked_for.append(bytes(int(i) for i in token_ids if i > 1).decode())
        return await super().sample(token_ids, n, sampling, vectors)


def collected(rollout: Hinted, *solved: bool | None, of: Task = SUM) -> tuple[Group, list[str]]:
    """The group, and the prompts; for each sampled group whether its last rollout is correct, None for a failure."""
    policy, outcomes = Writer("policy"), iter(solved)
    policy.asked_for = []

    async def scorer(group: Group) -> Group:
        outcome = next(outcomes)
        values = [0.0] * (len(group) - 1) + [float(bool(outcome))]
        scores: Sequence[Score] = [score(value) for value in values]
        if outcome is None:
            scores = [Score(value=math.nan, status="error")] * len(group)
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, scores, strict=True)))

    [group] = asyncio.run(rollout.collect_scored(of, {"policy": policy}, scorer))
    assert next(outcomes, "no more") == "no more"
    return group, policy.asked_for


def test_the_ladder_ends_with_the_first_success() -> None:
    """12 characters: a quarter is 3, a half 6."""
    group, prompts = collected(SHORT, False, False, True)
    assert prompts == ["2+2+3=", "2+2+3=|2+2", "2+2+3=|2+2=4;"]
    assert len(group) == 2 and group.key == "sum"
    for trajectory in group:
        prompt, own = trajectory.segments
        assert bytes(prompt.token_ids[1:].tolist()).decode() == "2+2+3=|2+2=4;" and not prompt.trained
        assert own.trained and own.logp is not None and trajectory.task is SUM
        assert info_of(trajectory) == {"hint_share": 0.5, "hint_has_answer": False}


def test_no_hint_where_a_rollout_is_correct_or_nothing_is_known() -> None:
    for outcome in (True, None):
        group, prompts = collected(SHORT, outcome)
        assert prompts == ["2+2+3="] and info_of(group.trajectories[0]) == {}


def test_the_last_group_is_kept_whatever_it_is() -> None:
    group, prompts = collected(SHORT, False, False, False, False)
    assert prompts[-1] == "2+2+3=|2+2=4; 4+" and not group.solved
    assert info_of(group.trajectories[0])["hint_share"] == 0.75


def test_a_hint_with_the_answer_in_it_is_reported() -> None:
    told = replace(SUM, answer="4")
    group, _ = collected(SHORT, False, False, True, of=told)
    assert info_of(group.trajectories[0])["hint_has_answer"] is True
    bare, _ = collected(SHORT, True)
    assert hint_metrics([group, bare]) == {"hinted": 0.5, "hints/0.5": 0.5, "hints/answer": 0.5}
    assert hint_metrics([bare]) == {}


def test_controls_and_the_cold_start() -> None:
    always = replace(SHORT, when="always", ladder=(0.5,))
    for outcome in (True, False):
        _, prompts = collected(always, outcome)
        assert prompts == ["2+2+3=|2+2=4;"]
    cold = replace(SHORT, start=0.2)
    assert cold.at(0.19).ladder == () and cold.at(0.2) is cold
    assert collected(cold.at(0.0), False)[1] == ["2+2+3="]
    assert collected(replace(always, ladder=()), True)[1] == ["2+2+3="]


def test_a_hint_is_never_the_whole_solution() -> None:
    short = replace(SUM, demonstrations=("7.",))
    _, prompts = collected(replace(SHORT, ladder=(0.9,)), False, True, of=short)
    assert prompts[-1] == "2+2+3=|7"


def test_a_hint_without_room_ends_the_ladder() -> None:
    long = replace(SUM, demonstrations=("1" * 9000,))
    _, prompts = collected(SHORT, False, False, of=long)
    assert len(prompts) == 2


def test_mistakes() -> None:
    with pytest.raises(UserError, match="task sum: the hinted rollout takes its hints from a demonstration"):
        SHORT.check([replace(SUM, demonstrations=())])
    with pytest.raises(UserError, match="'7' has one character, so that a hint would be the whole of it"):
        SHORT.check([replace(SUM, demonstrations=("7",))])
    named = replace(SHORT, column="solutoin")
    with pytest.raises(UserError, match=r"the column 'solutoin', which this task lacks; did you mean 'solution'"):
        named.check([replace(SUM, fields={"solution": "abc"})])
    replace(SHORT, column="solution").check([replace(SUM, fields={"solution": "abc"})])
    for wrong in ({"ladder": (0.5, 0.25)}, {"ladder": (1.0,)}, {"request": "{question}"}, {"request": "{hint}"}):
        with pytest.raises(ValidationError):
            Hinted(**wrong)  # type: ignore[arg-type]
