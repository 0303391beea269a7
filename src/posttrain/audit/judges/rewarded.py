"""A reward as a judge: two answers are scored as a group, in the order in which they are shown.

The margin is the difference of both scores. A reward that compares the rollouts of a group sees them in this order;
one that scores each alone gives the same margin in both orders. An error of either score is a verdict that cannot be
read. Probabilities are stated by `preference_model`, and by a reward model as those of Bradley and Terry.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from posttrain.audit.judges import Shown, Verdict
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.engines import Sampler, wait_for
from posttrain.errors import UserError
from posttrain.statistics.logistic import sigmoid
from posttrain.types import Group, Score, Segment, Task, Trajectory

AT_ONCE = 64
"""Most groups that are scored at a time."""
Samplers = Callable[[str], Mapping[str, Sampler]]
"""From a key to the models by role; draws are a function of the key."""


@dataclass(frozen=True, slots=True)
class RewardJudge:
    """A reward with its models."""

    name: str
    reward: Reward
    samplers: Samplers = field(default=lambda _: {})
    local: frozenset[str] = frozenset()
    """Roles whose models are here, and so have tokens."""
    cut: set[tuple[str, str]] = field(default_factory=set)
    """Task and text of the answers that did not fit into the model's context: their end was cut off."""

    def verdicts(self, shown: Sequence[Shown]) -> list[Verdict]:
        """A verdict for each; its draws are a function of the texts and the repetition."""
        return wait_for(self._all(shown))

    def scores(self, task: Task, answers: Sequence[str]) -> list[Score]:
        """The scores of answers to a task, as one group."""
        return wait_for(self._scores(task, answers, ""))

    async def _all(self, shown: Sequence[Shown]) -> list[Verdict]:
        free = asyncio.Semaphore(AT_ONCE)

        async def one(pair: Shown) -> Verdict:
            async with free:
                scores = await self._scores(pair.task, (pair.first, pair.second), f"{pair.repeat}")
            return self._verdict(*scores)

        return list(await asyncio.gather(*map(one, shown)))

    async def _scores(self, task: Task, answers: Sequence[str], key: str) -> list[Score]:
        text = "\0".join((str(task.prompt), *answers, key))
        samplers = self.samplers(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest())
        writer = next((samplers[role] for role in sorted(self.local & samplers.keys())), None)
        rollouts = tuple(written(task, n, answer, writer) for n, answer in enumerate(answers))
        self.cut.update(
            (task.key, answer)
            for rollout, answer in zip(rollouts, answers, strict=True)
            if rollout.stop_reason == "length"
        )
        group = Group(key=task.key, trajectories=rollouts)
        found = await scored(group, self.reward, RewardContext(samplers=samplers, as_given=True))
        return [trajectory.score for trajectory in found if trajectory.score is not None]

    def _verdict(self, first: Score, second: Score) -> Verdict:
        failed = next((score for score in (first, second) if score.status == "error"), None)
        if failed is not None:
            return Verdict(margin=None, fault=failed.explanation)
        margin = first.value - second.value
        chance = None
        if self.reward.kind == "preference_model":
            chance = first.value
        elif self.reward.kind == "reward_model":
            chance = float(sigmoid(margin))
        return Verdict(margin=margin, chance=chance, reply=first.explanation)


def written(task: Task, sample: int, text: str, writer: Sampler | None) -> Trajectory:
    """An answer as a rollout: in the tokens of a model, or else in bytes that stand for them. An answer that does not
    fit into the model's context has its first tokens only, and is one that was cut by its length.

    Raises `UserError` for a prompt that leaves no room for an answer.
    """
    cut = False
    prompt = task.prompt if isinstance(task.prompt, str) else "\n".join(message["content"] for message in task.prompt)
    if writer is not None:
        segments = [writer.prompt(task)]
        token_ids = writer.encode_completion(task.prompt, text)
        room = writer.context - len(segments[0])
        if room < 1:
            raise UserError(
                f"task {task.key}: the prompt has {len(segments[0])} tokens, and the judge's context of "
                f"{writer.context} leaves no room for an answer; shorten it, or take a judge with a longer context"
            )
        cut = len(token_ids) > room
        if cut:
            token_ids = token_ids[:room]
            text = writer.decode(token_ids)
    else:
        segments = [Segment(actor="prompt", token_ids=np.zeros(1, np.int64), text=prompt)]
        token_ids = np.frombuffer(text.encode("utf-8", "replace") or b"\n", np.uint8).astype(np.int64)
    answer = Segment(actor="policy", token_ids=token_ids, trained=True, text=text)
    return Trajectory(task=task, segments=(*segments, answer), stop_reason="length" if cut else "stop", sample=sample)
