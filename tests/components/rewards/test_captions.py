"""Captions: occurrences, late labels, what is made of them, and that each is requested once."""

import asyncio
import json
import math
from typing import Any

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.captions import Captions, captions_of
from posttrain.components.rewards.match import Match
from posttrain.grading.captions import decayed
from posttrain.types import Group, Score, Segment, Task, Trajectory
from tests.builders import ScriptedSampler

TASK = Task(key="q", prompt="go ", answer="x")


def played(*captions: str, end: str = "x") -> Trajectory:
    """An episode with a turn before each caption, and one at its end."""
    import numpy as np

    segments = [Segment(actor="prompt", token_ids=np.arange(1, 4), text="go ")]
    for number, text in enumerate((*captions, end)):
        own = Segment(actor="policy", token_ids=np.arange(5, 7), trained=True, logp=np.zeros(2, np.float32), text="x\n")
        segments.append(own)
        if number < len(captions):
            segments.append(Segment(actor="environment", token_ids=np.arange(7, 9), text=f"{text}\nx0 y0\n"))
    return Trajectory(task=TASK, segments=tuple(segments), stop_reason="environment")


def made(**settings: Any) -> Captions:
    return Captions(of=Match(), helpful=("take",), **settings)


def steps(reward: Captions, *episodes: Trajectory, **context: Any) -> tuple[list[list[Score]], dict[str, Any]]:
    """The scores of a step each with one episode, and the state, which is JSON after each."""
    state: dict[str, Any] = {}
    found = []
    for step, own in enumerate(episodes):
        given = RewardContext(learning=True, step=step, state=state, **context)
        found.append(list(asyncio.run(reward.score(Group(key="q", trajectories=(own,)), given))))
        state = json.loads(json.dumps(state))
    return found, state


def test_the_third_occurrence_has_a_27th() -> None:
    assert decayed({"a": 1.0, "b": 0.5}, ["a", "b", "a", "a"], 3.0) == pytest.approx([1.0, 0.5, 1 / 8, 1 / 27])
    assert decayed({"a": 1.0}, ["a", "a"], 0.0) == [1.0, 1.0]


def test_turns_have_the_caption_of_the_observation_after_them() -> None:
    assert captions_of(played("you take it", "b")) == [(0, 2, "you take it"), (20, 22, "b")]


@pytest.mark.parametrize("delay", [1, 3])
def test_labels_arrive_late_and_nothing_waits(delay: int) -> None:
    """Seen in step 0, requested in step 1, there in step 1 + delay: 10 * 1 + 0.4 * (1 + 1 / 8)."""
    episodes = [played("you take it", "a wall", "you take it")] * 6
    found, state = steps(made(delay=delay), *episodes)
    values = [own[0].value for own in found]
    assert values == pytest.approx([10.0] * (1 + delay) + [10.45] * (5 - delay))
    last = found[-1][0]
    assert [own[2] for own in last.spans] == pytest.approx([0.4, 0.05]) and last.parts["repeated"].value == 2
    assert sum(own[2] for own in last.spans) == pytest.approx(last.value - 10.0)
    assert state["requests"] == 2, "each caption is requested once"


def test_without_memory_of_requests_captions_are_requested_again() -> None:
    _, state = steps(made(delay=3, once=False), *[played("you take it", "a wall")] * 6)
    assert state["requests"] == 6, "in steps 1, 2 and 3"


def test_the_newest_captions_are_requested_first() -> None:
    _, state = steps(made(per_step=1), played("a", "b"), played("c", "b"), played("d"))
    assert [own[0] for own in state["labels"]] == ["b"] and [own[1] for own in state["pending"]] == ["c"]


def test_a_classifier_rewards_captions_without_a_label() -> None:
    seen = [f"you {what} the {c} key" for c in ("red", "blue", "gold") for what in ("take", "drop")]
    reward = made(model="classifier")
    found, state = steps(reward, played(*seen), played(), played(), played("you take the pink key"))
    assert found[-1][0].value == pytest.approx(10.4) and "you take the pink key" not in dict(state["labels"])
    found, _ = steps(reward, played(*seen), played(), played(), played("you drop the pink key"))
    assert found[-1][0].value == 10.0


def test_a_ranking_is_normalized_and_cut() -> None:
    seen = [f"you {what} the {c} key" for c in ("red", "blue", "gold") for what in ("take", "drop")]
    episodes = [played(*seen)] * 8
    found, state = steps(made(model="ranking"), *episodes)
    count, mean, squares = state["moments"]
    assert count == 36 and squares > 0, "six captions of each step before one with a model, 2 to 7"
    given = {own[0]: own[2] / 0.4 for own in found[-1][0].spans}
    assert len(given) == 3 and all(0.5 < z < 2 for z in given.values()), "what is taken, and nothing below -0.5"
    assert all(label in (0.0, 0.5, 1.0) for *_, label in state["labels"]) and math.isfinite(mean)


def test_noise_flips_labels_by_caption() -> None:
    _, state = steps(made(noise=1.0), played("you take it", "a wall"), played(), played())
    assert dict(state["labels"]) == {"you take it": 0.0, "a wall": 1.0}


def test_a_judge_labels_and_a_missing_reply_is_no_label() -> None:
    class Judge(ScriptedSampler):
        async def write(self, prompt: Any, n: int, sampling: Any) -> tuple[str, ...]:
            from posttrain.errors import NoAnswer

            text = prompt[0]["content"]
            assert "The goal: out" in text
            if "mute" in text:
                raise NoAnswer("no reply")
            return ("FOO and BAR",) if "good" in text else ("BAR",)

    reward = Captions(of=Match(), goal="out")
    assert reward.roles == {"judge"}
    _, state = steps(reward, *[played("good", "bad", "mute")] * 4, samplers={"judge": Judge("judge")})
    assert dict(state["labels"]) == {"good": 1.0, "bad": 0.0}
    assert state["requests"] == 5, "what had no reply is requested again"


def test_scores_that_are_not_learned_from_are_those_of_the_environment() -> None:
    reward, group = made(), Group(key="q", trajectories=(played("you take it"),))
    context = RewardContext()
    [score] = asyncio.run(reward.score(group, context))
    assert score.value == 10.0 and not score.spans and context.state == {}
