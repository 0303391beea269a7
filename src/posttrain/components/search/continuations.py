"""How well a model goes on from random places of the true text: data for a value model, no search.

Source: the training data of the evaluator of IRCoCo, arXiv:2401.16637 (Libolun-star/IRCoCo at 17199313,
evaluator/generate_score.py): a text is cut at a random place, the model goes on greedily by 10 tokens, and the value of
the prefix is how similar these are to the true next 10 tokens; 0 where there are none of one of them.

The text is the prompt with the reference answer; `cuts` places are drawn, before each of its tokens. Similarity is the
stage's reward, with the true tokens as the answer.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rollouts import Scorer
from posttrain.components.search import Found, Search, State, place_of_best
from posttrain.components.search._found import sampler_of, scored
from posttrain.engines import Sampler, Sampling, sampled_segment
from posttrain.errors import UserError
from posttrain.types import IntArray, Segment, Task, Trajectory


@frozen
class Continuations(Search):
    """Continues true prefixes greedily, and rates each prefix by the reward of its continuation."""

    cuts: Annotated[int, Field(ge=1, le=1024)] = 4
    """Prefixes of a task."""
    tokens: Annotated[int, Field(ge=1, le=4096)] = 10
    """Tokens of a continuation."""
    role: str = "policy"
    """The model that continues."""

    @property
    def roles(self) -> frozenset[str]:
        """The model that continues."""
        return frozenset({self.role})

    @property
    def uses_rewards(self) -> bool:
        """True: it makes training data."""
        return True

    async def search(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer | None = None) -> Found:
        """Continue the prefixes of a task, each scored in a group of its own."""
        if not task.answer:
            raise UserError(f"task {task.key} has no answer to be continued; fill the column or leave the row out")
        sampler = sampler_of(self.role, samplers)
        prompt = sampler.prompt(task)
        truth = sampler.encode_completion(task.prompt, task.answer)[:-1]
        places = [int(sampler.uniform() * len(truth)) for _ in range(self.cuts)]
        rollouts = await asyncio.gather(*(self._continued(task, prompt, truth, place, sampler) for place in places))
        groups = await asyncio.gather(*(scored(rollout.task, [rollout], scorer) for rollout in rollouts))
        found = [replace(rollout, task=task, sample=i) for i, (rollout,) in enumerate(groups)]
        values = [t.score.value if t.score is not None else np.nan for t in found]
        states = tuple(
            State(token_ids=t.segments[0].token_ids, text=t.segments[0].text[len(prompt.text) :], value=value, visits=1)
            for t, value in zip(found, values, strict=True)
            if np.isfinite(value)
        )
        statistics = {
            "rollouts": float(len(found)),
            "sampled_tokens": float(sum(len(t.segments[1]) for t in found)),
            "best_after": float(place_of_best(values) + 1),
        }
        return Found(
            trajectories=tuple(found), values=tuple(values), states=states, states_only=True, statistics=statistics
        )

    async def _continued(
        self, task: Task, prompt: Segment, truth: IntArray, place: int, sampler: Sampler
    ) -> Trajectory:
        """A prefix, as the prompt, and its continuation; the task's answer is what comes next."""
        ids = np.concatenate([prompt.token_ids, truth[:place]])
        whole = replace(prompt, token_ids=ids, text=prompt.text + sampler.decode(truth[:place]))
        greedy = Sampling(temperature=0.0, max_tokens=self.tokens)
        (completion,) = await sampler.sample(ids, 1, greedy, prompt.vectors)
        wanted = replace(task, answer=sampler.decode(truth[place : place + self.tokens]))
        written = sampled_segment(completion, self.role)
        return Trajectory(task=wanted, segments=(whole, written), stop_reason=completion.stop_reason, sample=0)
