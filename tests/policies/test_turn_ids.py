"""The law of segments: over twelve turns, the ids that are learned are the ids that were sampled, by any template."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.policies._byte_tokenizer import END_TOKEN_ID, write_byte_tokenizer
from posttrain.policies.tokenizer import Tokenizer
from posttrain.training.packing import example_of
from posttrain.types import Completion, IntArray, Message, Task
from tests.builders import ScriptedSampler

TURNS = 12
TEMPLATES = {
    "strips thoughts of earlier turns": (
        "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' and not loop.last %}"
        "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|end|>\n{% endfor %}[assistant]"
    ),
    "has no border that a token cannot cross": "{% for m in messages %}{{ m.content }}o\n{% endfor %}go",
    "puts what tools answer into a block": (
        "{% for m in messages %}{% if m.role == 'tool' %}"
        "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<tools>{% endif %}"
        "{{ m.content }}{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}</tools>"
        "{% endif %}{% else %}[{{ m.role }}]{{ m.content }}{% endif %}<|end|>{% endfor %}[assistant]"
    ),
}


class Counting(Instance):
    """Answers every action with the number of the turn."""

    turn = 0

    async def step(self, action: str) -> Outcome:
        self.turn += 1
        return Outcome(observation=Observation(text=f"o\nseen {self.turn} <think>"), done=self.turn == TURNS)


class Numbers(Environment):
    def instance(self, task: Task, draw: Draw) -> Instance:
        return Counting()


class Thinker(ScriptedSampler):
    """Thinks and acts in ids that the tokenizer would not give to its text; keeps what it was given and wrote."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__("policy")
        self.tokenizer = tokenizer
        self.prompts, self.wrote = list[IntArray](), list[IntArray]()

    def bind(self, *key: int | str) -> "Thinker":
        return self

    def encode(self, prompt: str | Sequence[Message]) -> IntArray:
        return self.tokenizer.encode_prompt(prompt if isinstance(prompt, str) else tuple(prompt))

    def encode_reply(self, prompt: Any, turn: IntArray, reply: Message) -> IntArray:
        return self.tokenizer.encode_reply(prompt, turn, reply)

    def decode(self, token_ids: IntArray) -> str:
        return self.tokenizer.decode(token_ids)

    async def sample(self, token_ids: IntArray, n: int, sampling: Any, vectors: Any = None) -> list[Completion]:
        turn = len(self.wrote)
        text = f"<think>{turn} o\n</think> go {turn}o\n"
        ids = np.array([*text.encode(), *([END_TOKEN_ID] if turn % 2 else [])], np.int64)
        self.prompts.append(token_ids)
        self.wrote.append(ids)
        logp = np.full(len(ids), -1.0, np.float32)
        return [Completion(token_ids=ids, logp=logp, stop_reason="stop", version=1, text=text)]


@pytest.mark.parametrize("speaker", ["user", "tool"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_ids_learned_are_ids_sampled(template: str, speaker: str, tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path, words=("o\n", "go", "ogo", "think>"))
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES[template])
    sampler = Thinker(Tokenizer.load(tmp_path))
    rollout = Turns(environment=Numbers(), n=1, max_turns=TURNS, sampling=Sampling(max_tokens=60), speaker=speaker)
    task = Task(key="count", prompt=(Message(role="user", content="count"),))
    [group] = asyncio.run(rollout.collect(task, {"policy": sampler}))
    [trajectory] = group.trajectories
    example = example_of(trajectory, {})
    assert len(sampler.wrote) == TURNS
    assert example.token_ids[example.positions].tolist() == np.concatenate(sampler.wrote).tolist()
    for turn, (given, own) in enumerate(zip(sampler.prompts, sampler.wrote, strict=True)):
        after = sampler.prompts[turn + 1] if turn + 1 < TURNS else example.token_ids
        assert after[: len(given) + len(own)].tolist() == [*given, *own], "what was there stays"
    seen = [s for s in trajectory.segments if s.actor == "environment"]
    assert len(seen) == TURNS - 1 and not any(s.trained for s in seen)
    for turn, segment in enumerate(seen):
        assert f"seen {turn + 1} <think>" in sampler.decode(segment.token_ids)


def test_a_template_that_leaves_out_what_was_sampled_is_refused_before_anything_is(tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[-1].content }}<|end|>")
    sampler = Thinker(Tokenizer.load(tmp_path))
    task = Task(key="count", prompt=(Message(role="user", content="count"),))
    several = Turns(environment=Numbers(), n=1, max_turns=2, sampling=Sampling(max_tokens=60))
    with pytest.raises(UserError, match="leaves out what the assistant said before"):
        asyncio.run(several.collect(task, {"policy": sampler}))
    assert not sampler.wrote
    [group] = asyncio.run(replace(several, max_turns=1).collect(task, {"policy": sampler}))
    assert len(sampler.wrote) == 1 and not group.trajectories[0].failure, "one turn has no reply"
