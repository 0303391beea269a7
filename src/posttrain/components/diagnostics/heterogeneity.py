"""Heterogeneity: how much the rewards of a model's traces differ, and what a verifier gains from that.

Source: Setlur et al. 2025, arXiv:2502.12118. Heterogeneity of a prompt is sigma^2 = sum over steps of the mean variance
of Q over actions. Where the reward is a function of the trace, this sum is the variance of the reward, since the values
along a trace are a martingale: so it is measured by rewards of independent traces, and in blocks of steps by those of
traces that share a prefix. Anti-concentration is the chance of a reward of at least mean + sqrt(eps) sigma.

Both sides get the same n traces per prompt. Imitation of those with a reward (verifier-free) has at best their mean
reward. A verifier (verifier-based) takes the best policy in a chi-squared ball around the model: its mean is at most
sqrt(radius) sigma above the model's. So their gap is small where traces hardly differ.

Differs: read in the abstract and in notes on the theorems; constants of the definition are not known. Imitation and
verifier are taken as perfect on these traces.

Measured here: the exact environment of a planted subsequence, reward over the horizon 10, 20 and 40 (radius 1, 512
traces, 5 seeds). A base of three policies (gamma .1, .3, .9): the verifier's mixture is above the imitating one by
0.067 [0.050, 0.083], 0.161 [0.152, 0.171] and 0.181 [0.173, 0.188]; nearly equal policies: 0.040, 0.036 and 0.018;
a single one: 0. In symbols the gap of the mixed base grows from 0.8 to 7.5. No model was trained for it
(docs/experiments.md).
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._answers import answer_all, check_roles, trajectory_of
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.statistics.intervals import mean
from posttrain.statistics.tilting import tilted
from posttrain.types import Group, Task

ROWS: Final = (299,)


@frozen
class Heterogeneity(Diagnostic):
    """Variance of rewards by prompt and by block of steps, anti-concentration, and both sides' rewards."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """The prompts."""
    reward: Reward
    """The reward of a trace: ``planted``, for example."""
    n: Annotated[int, Field(ge=2, le=1024)] = 16
    """Traces per prompt, the budget of both sides."""
    eps: NonNegativeFloat = 1.0
    """eps of anti-concentration."""
    radius: NonNegativeFloat = 1.0
    """Radius of the ball of the verifier's policy."""
    cuts: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=16)] = ()
    """Numbers of tokens after which prefixes are cut: blocks of steps whose heterogeneity is given apart."""
    branching: tuple[Annotated[int, Field(ge=2, le=64)], Annotated[int, Field(ge=2, le=64)]] = (4, 4)
    """Prefixes per prompt and cut, and continuations of each."""
    sampling: Sampling = Sampling(max_tokens=64)
    """Sampling of the traces."""

    def examine(self, *subjects: Subject) -> Finding:
        """Sample traces of every prompt, and of prefixes, and compare their rewards."""
        check_roles(self.reward)
        [subject] = subjects
        tasks = self.tasks.load()
        rewards, values = wait_for(self._sample(subject.serve(subject.load()), tasks))
        kept = [own for own in rewards if len(own) > 1]
        if not kept:
            raise UserError(f"none of the {len(tasks)} tasks has two traces that could be scored")
        found = summary(kept, self.eps, self.radius)
        blocks = self._blocks(values, found["variance"])
        result = {"tasks": len(kept), "left_out": len(rewards) - len(kept), "n": self.n, **found, "blocks": blocks}
        return Finding(values=result, lines=_lines(result))

    async def _sample(self, server: Server, tasks: Sequence[Task]) -> tuple[list[list[float]], dict[int, list[float]]]:
        """Rewards by prompt; by cut, for each prompt, the variance of the values of its prefixes."""
        groups = await answer_all(server, "heterogeneity", tasks, self.n, self.sampling)
        rewards = [await self._rewards(group) for group in groups]
        values: dict[int, list[float]] = {}
        for cut in self.cuts:
            spread = await asyncio.gather(*(self._of_prefixes(server, group, cut) for group in groups))
            values[cut] = [value for value in spread if value is not None]
        return rewards, values

    async def _rewards(self, group: Group) -> list[float]:
        done = await scored(group, self.reward, RewardContext())
        return [t.score.value for t in done if t.score is not None and math.isfinite(t.score.value)]

    async def _of_prefixes(self, server: Server, group: Group, cut: int) -> float | None:
        """Variance of the values of prefixes of one prompt, without that of the continuations' mean.

        Traces that end before the cut are their own value.
        """
        rows = []
        for trajectory in group.trajectories[: self.branching[0]]:
            start, own = trajectory.segments[0], trajectory.segments[-1]
            if len(own.token_ids) <= cut:
                rows.append((await self._rewards(Group(key=group.key, trajectories=(trajectory,)))) * 2)
                continue
            sampler = server.bind("heterogeneity", group.key, cut, trajectory.sample)
            before = np.concatenate([start.token_ids, own.token_ids[:cut]])
            left = max(1, self.sampling.max_tokens - cut)
            completions = await sampler.sample(before, self.branching[1], replace(self.sampling, max_tokens=left))
            shown = [
                trajectory_of(trajectory.task, start, sampler, own.token_ids[:cut], completion, i)
                for i, completion in enumerate(completions)
            ]
            rows.append(await self._rewards(Group(key=group.key, trajectories=tuple(shown))))
        return between([row for row in rows if len(row) > 1])

    def _blocks(self, values: dict[int, list[float]], variance: float) -> list[dict[str, float]]:
        """Heterogeneity of each block of steps: the growth of the variance of values from cut to cut."""
        ends = [(cut, float(np.mean(own))) for cut, own in sorted(values.items()) if own]
        found, before = [], (0, 0.0)
        for cut, total in ends:
            found.append({"from": before[0], "to": cut, "heterogeneity": total - before[1]})
            before = cut, total
        if ends:
            found.append({"from": before[0], "to": self.sampling.max_tokens, "heterogeneity": variance - before[1]})
        return found


def summary(rewards: Sequence[Sequence[float]], eps: float, radius: float) -> dict[str, Any]:
    """The numbers of prompts with two rewards or more: medians of heterogeneity, anti-concentration, both sides."""
    variances = [float(np.var(own, ddof=1)) for own in rewards]
    bounds = [float(np.mean(own)) + math.sqrt(eps * variance) for own, variance in zip(rewards, variances, strict=True)]
    above = [float(np.mean(np.array(own) >= bound - 1e-12)) for own, bound in zip(rewards, bounds, strict=True)]
    rewarded = [[value for value in own if value > 0] for own in rewards]
    imitated = [float(np.mean(own)) if own else 0.0 for own in rewarded]
    best = [float(np.dot(own, tilted(own, [1 / len(own)] * len(own), radius))) for own in rewards]
    gaps = [b - i for b, i in zip(best, imitated, strict=True)]
    return {
        "variance": float(np.mean(variances)),
        "sigma": float(np.median(np.sqrt(variances))),
        "above": float(np.mean(above)),
        "rewarded": float(np.mean([len(own) / len(all_) for own, all_ in zip(rewarded, rewards, strict=True)])),
        "base": _spread([float(np.mean(own)) for own in rewards]),
        "verifier_free": _spread(imitated),
        "verifier_based": _spread(best),
        "gap": _spread(gaps),
    }


def between(rows: Sequence[Sequence[float]]) -> float | None:
    """Variance of the rows' expectations: that of their means, less what they owe to the spread within (analysis of
    variance). None for fewer than two rows.
    """
    if len(rows) < 2:
        return None
    means = [float(np.mean(row)) for row in rows]
    within = [float(np.var(row, ddof=1)) / len(row) for row in rows]
    return float(np.var(means, ddof=1)) - float(np.mean(within))


def _spread(values: Sequence[float]) -> dict[str, Any]:
    found = mean(values)
    return {"mean": found.value, "interval": list(found.interval) if len(values) > 1 else None}


def _lines(values: dict[str, Any]) -> list[str]:
    """The spread of rewards, and both sides."""

    def text(name: str) -> str:
        found = values[name]
        low, high = found["interval"] or (float("nan"), float("nan"))
        return f"{found['mean']:.3f} [{low:.3f}, {high:.3f}]"

    lines = [
        f"{values['tasks']} prompts with {values['n']} traces each; reward {text('base')}",
        f"heterogeneity: sigma {values['sigma']:.3f} (median over prompts)",
        f"anti-concentration: {values['above']:.1%} of the traces are above their mean by the standard deviation",
        f"imitation of the rewarded traces: at best {text('verifier_free')}",
        f"a verifier's best policy in the ball: {text('verifier_based')}",
        f"gap {text('gap')}",
    ]
    for block in values["blocks"]:
        lines.append(f"steps {block['from']} to {block['to']}: heterogeneity {block['heterogeneity']:.4f}")
    return lines
