"""Turns, with a model whose words are written down and an environment that repeats what it was given."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.components.environments.calculator import Calculator
from posttrain.components.environments.corridor import Corridor
from posttrain.components.rewards import RewardContext, scored
from posttrain.components.rewards.verdict import Verdict as VerdictReward
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.stages.rl.credit import token_rewards
from posttrain.stages.rl.metrics import turn_metrics
from posttrain.types import Completion, Message, Task, Trajectory
from tests.builders import info_of

FIVE = Task(key="five", prompt="Five.\n", fields={"cells": 5})
CHAT = Task(key="chat", prompt=({"role": "user", "content": "Walk."},), fields={"cells": 5})
END = 0


class Scripted:
    """Writes the next word of its rollout's script, in upper case, which its decoding makes lower case.

    Rollout i waits i turns of the event loop before each answer, so that the rollouts get out of step.
    """

    context = 200

    def __init__(self, scripts: Sequence[Sequence[str]], key: tuple[int | str, ...] = ()) -> None:
        self.scripts, self.key = scripts, key
        self.prompts: list[list[int]] = []
        self.bound: dict[tuple[int | str, ...], Scripted] = {}
        self.samplings: list[Sampling] = []

    def bind(self, *key: int | str) -> "Scripted":
        child = self.bound[key] = Scripted(self.scripts, key)
        child.context = self.context
        return child

    def encode(self, prompt: str | Sequence[Message]) -> np.ndarray:
        text = prompt if isinstance(prompt, str) else "".join(f"[{m['role']}]{m['content']}" for m in prompt)
        return np.array([1, *text.encode()], np.int64)

    def encode_reply(self, prompt: object, turn: np.ndarray, reply: Message) -> np.ndarray:
        text = reply["content"] if isinstance(prompt, str) else f"[{reply['role']}]{reply['content']}"
        return np.array([*text.encode()], np.int64)

    def decode(self, token_ids: np.ndarray) -> str:
        return bytes(int(i) for i in token_ids if i > 1).decode().lower()

    def uniform(self) -> float:
        return 0.25

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Sampling) -> list[Completion]:
        assert n == 1
        number = int(self.key[-1])
        for _ in range(number):
            await asyncio.sleep(0)
        word = self.scripts[number][len(self.prompts)]
        self.prompts.append(token_ids.tolist())
        self.samplings.append(sampling)
        cut = word.endswith("~")
        ids = np.array([*word.rstrip("~").upper().encode(), *([] if cut else [END])], np.int64)
        return [
            Completion(
                token_ids=ids,
                logp=-np.arange(1, len(ids) + 1, dtype=np.float32) / 8,
                stop_reason="length" if cut else "stop",
                version=7,
                text=self.decode(ids),
            )
        ]


def attempts(turns: Turns, model: Scripted, task: Task = FIVE) -> list[Trajectory]:
    (group,) = asyncio.run(turns.collect(task, {"policy": model}))  # type: ignore[dict-item]
    assert group.key == task.key
    return list(group)


def test_model_and_environment_take_turns() -> None:
    model = Scripted([["f", "jump", "f", "f", "f"]])
    (attempt,) = attempts(Turns(environment=Corridor(), n=1, max_turns=9), model)
    assert [(s.actor, s.text, s.turn, s.trained) for s in attempt.segments] == [
        ("prompt", "Five.\nAt 1.", 0, False),
        ("policy", "f", 0, True),
        ("environment", "At 2.", 1, False),
        ("policy", "jump", 1, True),
        ("environment", "At 2.", 2, False),
        ("policy", "f", 2, True),
        ("environment", "At 3.", 3, False),
        ("policy", "f", 3, True),
        ("environment", "At 4.", 4, False),
        ("policy", "f", 4, True),
    ]
    said = [s for s in attempt.segments if s.trained]
    assert [s.state_key for s in said] == ["0", "1", "1", "2", "3"]
    assert [s.reward for s in said] == [0, -0.1, 0, 0, 0]
    assert {s.version for s in said} == {7}
    assert attempt.stop_reason == "environment"
    assert attempt.completion == "fAt 2.jumpAt 2.fAt 3.fAt 4.f"
    assert info_of(attempt) == {
        "turns": 5,
        "cost": 13.0,
        "invalid_turns": 1,
        "valid_turns": [True, False, True, True, True],
        "turn_rewards": [0.0, -0.1, 0.0, 0.0, 0.0],
        "measures": {},
        "verdict": {"value": 1.0, "solved": True, "explanation": "cell 5 of 5 after 5 actions"},
    }


def test_ids_are_only_ever_appended() -> None:
    """The model's upper case would be lower case, had it been made from text again."""
    model = Scripted([["f", "f", "f", "f"]])
    (attempt,) = attempts(Turns(environment=Corridor(), n=1), model)
    prompts = model.bound["attempt", 0].prompts
    for shorter, longer in pairwise(prompts):
        assert longer[: len(shorter) + 2] == [*shorter, ord("F"), END]
    assert attempt.token_ids.tolist() == [*prompts[-1], ord("F"), END]
    assert attempt.behavior_logp.tolist() == [-0.125, -0.25] * 4


def test_in_a_chat_the_environment_speaks_by_the_template() -> None:
    model = Scripted([["f", "f"]])
    (attempt,) = attempts(Turns(environment=Corridor(), n=1, max_turns=2, speaker="tool"), model, CHAT)
    shown = bytes(i for i in attempt.token_ids.tolist() if i > 1).decode()
    assert shown == "[user]Walk.\n\nAt 1.F[tool]At 2.F"


def test_turn_rewards_and_verdict_meet_in_the_token_rewards() -> None:
    model = Scripted([["f", "jump", "f", "f", "f"], ["s"] * 9])
    turns = Turns(environment=Corridor(), n=2, max_turns=9)
    (group,) = asyncio.run(turns.collect(FIVE, {"policy": model}))  # type: ignore[dict-item]
    group = asyncio.run(scored(group, VerdictReward(), RewardContext()))
    first, second = group
    assert token_rewards(first, []).tolist() == pytest.approx([0, 0, 0, 0, 0, 0, -0.1, 0, 0, 0, 0, 0, 1])
    assert not token_rewards(second, []).any()
    assert (first.solved, second.solved) == (True, False)
    assert turn_metrics(group.trajectories) == pytest.approx(
        {"turns": 7, "turns/invalid": 1 / 14, "turns/reward": -0.05}
    )


def test_turns_run_out() -> None:
    (attempt,) = attempts(Turns(environment=Corridor(), n=1, max_turns=3), Scripted([["s"] * 3]))
    assert attempt.stop_reason == "length"
    assert [s.actor for s in attempt.segments] == ["prompt", "policy", *["environment", "policy"] * 2]
    assert info_of(attempt)["verdict"]["solved"] is False


def test_a_full_context_ends_the_rollout() -> None:
    """12 ids of prompt; a turn is 2 and an observation 5: after two turns there are 21, and 26 leave no room in 26."""
    model = Scripted([["s"] * 9])
    model.context = 26
    (attempt,) = attempts(Turns(environment=Corridor(), n=1), model)
    assert (len(attempt.token_ids), info_of(attempt)["turns"], attempt.stop_reason) == (21, 2, "length")
    model.context = 27
    (attempt,) = attempts(Turns(environment=Corridor(), n=1), model)
    assert info_of(attempt)["turns"] == 3


def test_a_turn_that_was_cut_goes_to_the_environment_as_it_is() -> None:
    (attempt,) = attempts(Turns(environment=Calculator(), n=1), Scripted([["<<2+2>>", "4~"]]))
    assert attempt.segments[2].text == "4"
    assert attempt.stop_reason == "length", "the answer may go on behind the cut"


def test_the_environment_adds_its_stop_strings() -> None:
    model = Scripted([["4"]])
    attempts(Turns(environment=Calculator(), n=1, sampling=Sampling(stop=("\n", ">>"))), model)
    assert model.bound["attempt", 0].samplings[0].stop == ("\n", ">>")
    attempts(Turns(environment=Calculator(), n=1), model)
    assert model.bound["attempt", 0].samplings[0].stop == (">>",)


def test_rollouts_are_their_own_however_fast_the_others_are() -> None:
    scripts = [["f"] * 4, ["b"] * 9, ["f", "s"] * 4 + ["f"]]
    together = attempts(Turns(environment=Corridor(), n=3, max_turns=9), Scripted(scripts))
    assert [t.sample for t in together] == [0, 1, 2]
    assert [info_of(t)["turns"] for t in together] == [4, 9, 7]
    alone = attempts(Turns(environment=Corridor(), n=1, max_turns=9), Scripted(scripts))
    assert alone[0].token_ids.tolist() == together[0].token_ids.tolist()


class Flaky(Instance):
    """Fails when it is set to."""

    async def step(self, action: str) -> Outcome:
        if action == "fail":
            raise RuntimeError("the service is down")
        return Outcome(done=action == "end")

    def verdict(self) -> Verdict:
        return Verdict(value=1.0, solved=True)


class Service(Environment):
    def instance(self, task: Task, draw: Draw) -> Instance:
        return Flaky()


class Closed(Environment):
    def instance(self, task: Task, draw: Draw) -> Instance:
        raise OSError("no such place")


@pytest.fixture
def turns_in() -> Callable[[Environment], Turns]:
    def make(environment: Environment) -> Turns:
        turns = Turns(environment=Calculator(), n=2)
        object.__setattr__(turns, "environment", environment)
        return turns

    return make


def test_an_environment_that_fails_spoils_its_own_rollout_only(turns_in: Callable[[Environment], Turns]) -> None:
    model = Scripted([["go", "fail"], ["go", "end"]])
    (group,) = asyncio.run(turns_in(Service()).collect(FIVE, {"policy": model}))  # type: ignore[dict-item]
    broken, sound = asyncio.run(scored(group, VerdictReward(), RewardContext()))
    assert broken.score is not None and sound.score is not None
    assert broken.score.status == "error"
    assert "RuntimeError: the service is down (test_turns.py line" in broken.score.explanation
    assert np.isnan(broken.score.value)
    assert broken.completion == "go", "what came before is kept for the record"
    assert (sound.score.status, sound.score.value) == ("ok", 1.0)
    assert turn_metrics([broken, sound])["turns"] == 2


def test_an_environment_that_never_begins_leaves_the_prompt(turns_in: Callable[[Environment], Turns]) -> None:
    group = attempts(turns_in(Closed()), Scripted([[], []]))
    assert all("no such place" in t.failure and t.num_trained == 0 and t.completion == "" for t in group)


def test_a_model_that_fails_is_not_the_environments_fault(turns_in: Callable[[Environment], Turns]) -> None:
    class Refusing(Scripted):
        def bind(self, *key: int | str) -> "Refusing":
            return Refusing(self.scripts, key)

        async def sample(self, token_ids: np.ndarray, n: int, sampling: Sampling) -> list[Completion]:
            raise UserError("no room")

    with pytest.raises(UserError, match="no room"):
        attempts(turns_in(Service()), Refusing([[], []]))


class Dice(Instance):
    """Shows what it draws."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.left = draw, 3

    async def step(self, action: str) -> Outcome:
        self.left -= 1
        return Outcome(observation=Observation(text=f" {self.draw():.6f} "), done=not self.left)


class Chance(Environment):
    def instance(self, task: Task, draw: Draw) -> Instance:
        return Dice(draw)


def test_with_a_real_engine_draws_do_not_depend_on_company(
    turns_in: Callable[[Environment], Turns], tmp_path: Any
) -> None:
    """The same rollouts with two slots and with many, alone and beside other tasks; chance is drawn per rollout."""
    folder = new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=128)
    policy = load_policy("policy", Model(source=str(folder)), {}, __import__("torch").device("cpu"))
    turns = turns_in(Chance())
    object.__setattr__(turns, "sampling", Sampling(max_tokens=6))

    def collected(slots: int, *keys: str) -> Mapping[str, list[tuple[int, ...]]]:
        server = Native(slots=slots).serve(policy, 0)

        async def run() -> list[Any]:
            return list(await asyncio.gather(*(turns.collect(FIVE, {"policy": server.bind(key)}) for key in keys)))

        return {
            key: [tuple(t.token_ids.tolist()) for t in group]
            for key, (group,) in zip(keys, asyncio.run(run()), strict=True)
        }

    many = collected(64, "a", "b", "c")
    assert len({ids for attempts in many.values() for ids in attempts}) == 6
    assert collected(2, "b", "a")["a"] == collected(64, "a")["a"] == many["a"]
