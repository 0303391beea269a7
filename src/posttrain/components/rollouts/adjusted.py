"""Completions of a task that is made easier by a hint or harder by noise, as far as its difficulty requires.

Source: DeepVideo-R1, Park et al. 2025, arXiv:2506.07464, section 3.3. A task has its difficulty Delta in the field
``delta`` (`curricula/paced`). Hard, Delta > 0: reasoning traces are sampled with the true answer in the prompt, the one
with the highest reward is taken, and a part of it is put into the prompt as a hint, the larger the larger |Delta| is.
Easy, Delta < 0: Gaussian noise on the pixels of the task's images, with a std in proportion to |Delta|. A task
without ``delta``, and an easy one without images, is left as it is.

The hint is the model's own text: of the tokens before the `marker` of the answer the share scale |Delta|, at most
`most`. It is not learned from, as it is in the prompt.

Differs: the paper gives no factors; `scale`, `most` and `noise` are ours. Frames of a video are images of the task.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Prefix, Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.datasets.templates import EXPLAIN, check_revealing, prompt_from
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Image, Task

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Adjusted(Rollout):
    """Samples `n` completions of the adjusted prompt."""

    n: PositiveInt = 8
    """Completions per task."""
    request: Annotated[str, AfterValidator(check_revealing)] = EXPLAIN
    """Prompt template for a trace of a hard task. Placeholders: question, answer."""
    marker: Annotated[str, Field(min_length=1)] = "####"
    """Text before the final answer, at which a hint ends at the latest."""
    traces: PositiveInt = 4
    """Traces of a hard task, of which the one with the highest reward gives the hint."""
    scale: PositiveFloat = 1.0
    """Share of the trace in the hint, for each unit of Delta (in units of reward)."""
    most: Share = 0.5
    """Largest share of the trace in the hint."""
    noise: NonNegativeFloat = 64.0
    """Standard deviation of the noise on pixels (of 255) for each unit of Delta."""
    sampling: Sampling = Sampling()
    """How completions and traces are sampled."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group of `n` completions, with the share of the hint as a fact."""
        sampler, delta = sampler_of("policy", samplers), float(task.fields.get("delta", 0.0))
        asked, fact = task, Prefix(prefix_tokens=0, prefix_share=0.0)
        if delta > 0 and task.answer is not None:
            share = min(self.most, self.scale * delta)
            hint, tokens = await self._hint(task, sampler, scorer, share)
            asked = replace(task, prompt=prompt_from(task, "{question}{hint}", {"hint": hint}))
            fact = Prefix(prefix_tokens=tokens, prefix_share=share)
        elif delta < 0 and task.images:
            asked = replace(task, images=tuple(noised(i, -delta * self.noise, sampler) for i in task.images))
        prompt = prompt_segment(asked, sampler)
        if len(prompt) >= sampler.context:
            prompt, fact = prompt_segment(task, sampler), Prefix(prefix_tokens=0, prefix_share=0.0)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        found = answers(task, prompt, completions, "policy")
        return [await scorer(Group(key=task.key, trajectories=tuple(replace(t, facts=(fact,)) for t in found)))]

    async def _hint(self, task: Task, sampler: Sampler, scorer: Scorer, share: float) -> tuple[str, int]:
        """A part of the best trace, and its number of tokens; empty where there is no room for the request."""
        shown = sampler.prompt(replace(task, prompt=prompt_from(task, self.request, {"answer": task.answer or ""})))
        if len(shown) >= sampler.context:
            return "", 0
        completions = await sampler.sample(shown.token_ids, self.traces, self.sampling, shown.vectors)
        scored = await scorer(Group(key=task.key, trajectories=answers(task, shown, completions, "policy")))
        usable = [t for t in scored if t.score is not None and t.score.status != "error"]
        if not usable:
            return "", 0
        best = max(usable, key=lambda t: t.score.value if t.score is not None else 0.0)
        token_ids = best.completion_ids
        before = len(sampler.decode(token_ids).partition(self.marker)[0])
        reasoned = sum(len(sampler.decode(token_ids[: i + 1])) <= before for i in range(len(token_ids)))
        kept = int(share * reasoned)
        return sampler.decode(token_ids[:kept]), kept


def noised(image: Image, std: float, sampler: Sampler) -> Image:
    """The image with Gaussian noise on its pixels, drawn by the rollout's own draws."""
    from posttrain.datasets.images import identity, pixels_of, write_png

    pixels = pixels_of(image)
    rng = np.random.default_rng(int(sampler.uniform() * 2**53))
    changed = pixels + rng.normal(0.0, std, pixels.shape)
    return Image(data=write_png(changed.round().clip(0, 255).astype(np.uint8)), name=identity(image))
