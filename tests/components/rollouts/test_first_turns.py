"""Which rollouts in an environment are first by simulated cost, and which malformed turns are free."""

import asyncio
from typing import Any

import numpy as np
import pytest

from posttrain.component import frozen
from posttrain.components.curricula import Pick
from posttrain.components.environments import Draw, Environment, Episode, Instance, Observation, Outcome
from posttrain.components.environments.budgeted import Budgeted
from posttrain.components.environments.corridor import Corridor
from posttrain.components.rollouts._budget import Budget
from posttrain.components.rollouts.first_turns import FirstTurns
from posttrain.components.rollouts.turns import Turns
from posttrain.errors import UserError
from posttrain.stages.rl.flight import Flight
from posttrain.stages.rl.pieces import PiecedSampler, Progress
from posttrain.types import Group, Task, Trajectory
from tests.components.environments.playing import play
from tests.components.rollouts.test_turns import FIVE, Scripted


def rollouts(turns: Turns | FirstTurns, scripts: list[list[str]]) -> tuple[list[Trajectory], Scripted]:
    model = Scripted(scripts)
    [group] = asyncio.run(turns.collect(FIVE, {"policy": model}))  # type: ignore[dict-item]
    return [*group], model


def episode(trajectory: Trajectory) -> Episode:
    found = trajectory.fact(Episode)
    assert found is not None
    return found


@pytest.mark.parametrize(("free", "turns"), [(0, 3), (1, 4), (2, 5), (5, 5)])
def test_invalid_turns_are_counted_or_free(free: int, turns: int) -> None:
    script = ["jump", "f", "jump", "f", "f", "f", "f"]
    [own], _ = rollouts(Turns(environment=Corridor(), n=1, max_turns=3, budget=Budget(free_turns=free)), [script])
    assert episode(own).turns == turns
    assert episode(own).invalid_turns == 2


def test_a_malformed_turn_of_a_budget_is_free_where_it_is_set_so() -> None:
    task = Task(key="a", prompt="6 times 7?", answer="42")
    words = ["hm", "hm", "<execute>6*7</execute>", "<solution>42</solution>"]
    *_, counted, _ = play(Budgeted(steps=2), task, words)
    _, outcomes, free, measures = play(Budgeted(steps=2, malformed="free"), task, words)
    assert counted is not None and not counted.solved
    assert free is not None and free.solved
    assert "2 steps" in outcomes[1].observation.text and measures["invalid"] == 2.0
    _, outcomes, *_ = play(Budgeted(steps=2, malformed="free"), task, ["hm"] * 9)
    assert len(outcomes) == 4, "as many free ones as there are steps"


@frozen
class Slow(Environment):
    """Ends after three turns; the word ``wait`` takes long, and ``boom`` fails."""

    latency: float = 50.0

    def instance(self, task: Task, draw: Draw) -> Instance:
        return _Slow(self.latency)


class _Slow(Instance):
    def __init__(self, latency: float) -> None:
        self.latency, self.turn = latency, 0

    async def step(self, action: str) -> Outcome:
        if "boom" in action:
            raise RuntimeError("boom")
        self.turn += 1
        latency = self.latency if "wait" in action else 0.0
        return Outcome(observation=Observation(text=" "), done=self.turn == 3, latency=latency)


def test_the_first_by_tokens_and_stated_latencies_are_kept() -> None:
    scripts = [["wait", "a", "a"], ["longer words", "a", "a"], ["a", "a", "a"], ["a", "boom", "a"]]
    kept, _ = rollouts(FirstTurns(environment=Slow(), n=2, over=2), scripts)
    assert [t.segments[1].text for t in kept] == ["longer words", "a"]
    assert [t.sample for t in kept] == [0, 1]
    assert [episode(t).cost for t in kept] == [13 + 2 + 2, 6]
    everyone, _ = rollouts(Turns(environment=Slow(), n=4), scripts)
    assert [episode(t).cost for t in everyone[:3]] == [5 + 50 + 4, 17, 6]
    without, _ = rollouts(FirstTurns(environment=Slow(latency=0.0), n=2, over=2), scripts)
    assert [t.segments[1].text for t in without] == ["wait", "a"]


def test_a_rollout_that_cannot_be_among_the_first_is_dropped() -> None:
    """It is not sampled to its end; the others are what they are alone."""
    scripts = [["f"] * 8, ["jump", "jump", *["f"] * 6]]
    kept, model = rollouts(FirstTurns(environment=Corridor(), n=1, over=1), scripts)
    assert [len(model.bound["attempt", i].prompts) for i in (0, 1)] == [4, 4]
    alone, _ = rollouts(Turns(environment=Corridor(), n=1), scripts[:1])
    assert [s.text for s in kept[0].segments] == [s.text for s in alone[0].segments]


def test_failures_take_the_place_of_no_other() -> None:
    kept, _ = rollouts(FirstTurns(environment=Slow(), n=1, over=2), [["boom"], ["a", "a", "a"], ["boom"]])
    assert [t.failure for t in kept] == [""]
    kept, _ = rollouts(FirstTurns(environment=Slow(), n=1, over=1), [["boom"], ["boom"]])
    assert "boom" in kept[0].failure


def test_a_latency_that_is_none_is_a_failure() -> None:
    [own], _ = rollouts(Turns(environment=Slow(latency=-1.0), n=1), [["wait", "a", "a"]])
    assert "latency" in own.failure


@pytest.mark.parametrize(("tokens", "rounds"), [(0.0, 0), (4.0, 1), (4.5, 2), (12.0, 3)])
def test_a_quota_of_pieces_counts_what_is_stated(tokens: float, rounds: int) -> None:
    """A group in a stream waits as many pieces, and a continued one none again."""
    for answered in (False, True):
        flight, progress = Flight(), Progress(number=0)
        sampler = PiecedSampler(Scripted([["a"]]), "policy", progress, flight.gate, 4)  # type: ignore[arg-type]
        if answered:
            progress.answers.update({f"{sampler._name()} idle {i}": {"step": 0, "value": None} for i in range(rounds)})

        async def work(sampler: PiecedSampler = sampler) -> list[Group]:
            await sampler.idle(tokens)
            return []

        flight.begin(progress, Pick(task=FIVE), 0, work())
        done = passed(flight)
        assert done == (0 if answered else rounds)
        assert len(progress.answers) == rounds and progress.spans == []


def passed(flight: Any) -> int:
    """Rounds until the group has ended."""
    rounds = 0
    while True:
        went, ended = flight.go(lambda asked: True)
        rounds += bool(went)
        if ended or rounds > 99:
            flight.close()
            return rounds


def test_tokens_are_those_of_the_model_alone() -> None:
    [own], _ = rollouts(Turns(environment=Slow(), n=1), [["ab", "c", "d"]])
    written = np.sum([len(s) for s in own.segments if s.actor == "policy"])
    assert episode(own).cost == written == 7


def test_tokens_in_all_are_limited_and_shown() -> None:
    """A turn is one letter and the end token: of 5 tokens the third turn may have 1, and is the last."""
    turns = Turns(environment=Corridor(), n=1, max_turns=9, budget=Budget(tokens=5, shown=True))
    [own], model = rollouts(turns, [["f", "f", "f~", "f", "f"]])
    assert [s.max_tokens for s in model.bound["attempt", 0].samplings] == [5, 3, 1]
    assert episode(own).tokens_left == (3, 1, 0)
    assert own.stop_reason == "length"
    assert [s.text for s in own.segments if s.actor != "policy"] == [
        "Five.\nAt 1. [9 turns, 5 tokens left]",
        "At 2. [8 turns, 3 tokens left]",
        "At 3. [7 turns, 1 tokens left]",
    ]
    assert [s.state_key for s in own.segments if s.trained] == ["0", "1", "2"], "states are those without the budget"


def test_a_limit_of_tokens_may_be_drawn() -> None:
    """The scripted draw is .25: of 2 to 9 that is 4."""
    turns = Turns(environment=Corridor(), n=1, budget=Budget(tokens=(2, 9)))
    [own], _ = rollouts(turns, [["f"] * 4])
    assert episode(own).tokens_left == (2, 0)
    with pytest.raises(UserError, match="may not be above the second"):
        Turns(environment=Corridor(), budget=Budget(tokens=(9, 2))).check([FIVE])


def test_turns_alone_are_shown_without_a_limit_of_tokens() -> None:
    [own], _ = rollouts(Turns(environment=Corridor(), n=1, max_turns=2, budget=Budget(shown=True)), [["f", "f"]])
    assert [s.text for s in own.segments if s.actor == "environment"] == ["At 2. [1 turns left]"]
    assert episode(own).tokens_left is None
