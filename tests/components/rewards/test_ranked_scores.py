import asyncio
import re
from collections.abc import Sequence

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.listwise import Listwise
from posttrain.components.rewards.ranked_scores import RankedScores
from posttrain.engines import Sampling
from posttrain.errors import NoAnswer, UserError
from posttrain.types import Group, Message, Task
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, score_all

ITEM = Task(key="k", prompt="q", fields={"gold": {"model-1": 2, "model-2": 1}})
RIGHT = '<think>x</think>{"scores": {"model-1": 2, "model-2": 1}, "best-to-worst": ["model-1", "model-2"]}'


def test_by_hand() -> None:
    """Order 1 and format 0.95; reversed 0 and 0.75; empty 0 and 0."""
    wrong = RIGHT.replace('1": 2', '1": 0')
    found = score_all(RankedScores(), *(attempt(text, ITEM) for text in (RIGHT, wrong, "")))
    assert [score.value for score in found] == pytest.approx([(1 + 0.25 * 0.95) / 1.25, 0.25 * 0.75 / 1.25, 0.0])
    assert [score.status for score in found] == ["ok", "wrong", "wrong"]
    assert [score.value for score in score_all(RankedScores(measure="best", weight=0.0), attempt(RIGHT, ITEM))] == [1.0]


def test_an_empty_reply_is_not_rewarded() -> None:
    part = '{"scores": {"model-1": 2}}'
    [strict] = score_all(RankedScores(weight=0.0), attempt(part, ITEM))
    assert strict.value == 0.0 and "no score of model-2" in strict.explanation
    [loose] = score_all(RankedScores(weight=0.0, complete=False), attempt(part, ITEM))
    assert loose.value == 0.0


@pytest.mark.parametrize("gold", [None, {"a": 1}, {"a": "x", "b": 2}, [1, 2]])
def test_a_task_needs_gold_scores(gold: object) -> None:
    with pytest.raises(UserError, match="gold is"):
        RankedScores().check([Task(key="k", prompt="q", fields={"gold": gold})])


class Longest(ScriptedSampler):
    """A judge that scores by length, or by brevity if the principle is "short"; "?" gets no score."""

    def __init__(self, *, down: bool = False) -> None:
        super().__init__("judge")
        self.down = down
        self.prompts: list[str] = []

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        if self.down:
            raise NoAnswer("down")
        assert isinstance(prompt, str)
        self.prompts.append(prompt)
        sign = -1 if "Principle: short" in prompt else 1
        found = re.findall(r"(model-\d+): (\S+)", prompt)
        scores = ", ".join(f'"{name}": {3 + sign * len(text)}' for name, text in found if text != "?")
        return [f'{{"scores": {{{scores}}}}}']


def scored(principle: str, *texts: str, step: int = 0, judge: Longest | None = None) -> list[float | str]:
    judge = judge or Longest()
    task = Task(key="k", prompt="q", fields={"principle": principle})
    context = RewardContext(samplers={"judge": judge}, step=step)
    group = Group(key="k", trajectories=tuple(attempt(text, task) for text in texts))
    found = asyncio.run(Listwise(raw=True, chat=False).score(group, context))
    assert len(judge.prompts) <= 1, "one call for a group"
    return [score.explanation if score.status == "error" else score.value for score in found]


def test_one_call_scores_a_group_and_the_principle_reverses_it() -> None:
    assert scored("long", "a", "bb") == [4.0, 5.0]
    assert scored("short", "a", "bb") == [2.0, 1.0]


def test_a_score_off_the_scale_is_an_error_and_never_clipped() -> None:
    for principle, text, number in (("short", "ccc", "0"), ("long", "ccc", "6")):
        first, second = scored(principle, "a", text)
        assert isinstance(first, float) and f"the judge's score {number} is not from 1 to 5" in str(second)


def test_the_order_is_drawn_anew() -> None:
    judges = [Longest() for _ in range(8)]
    for step, judge in enumerate(judges):
        assert scored("long", "a", "bb", step=step, judge=judge) == [4.0, 5.0]
    assert len({judge.prompts[0] for judge in judges}) > 1


def test_a_missing_score_is_an_error() -> None:
    first, second = scored("long", "a", "?")
    assert first == 4.0 and "has no score of it" in str(second)
    assert scored("long", "a", judge=Longest(down=True)) == ["down"]
