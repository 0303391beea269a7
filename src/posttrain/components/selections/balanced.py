"""Own solutions for self-training, at the temperature and the threshold that balance exploration and exploitation.

Source: B-STaR, arXiv:2412.17256, and its released code (hkust-nlp/B-STaR at a0f5d95e, determine_hyper.py,
metric_modiacc_auto.py); the formula of the paper is known through the code.

    score of a text = lowest score of its steps / 5 + [its answer is correct]
    balance of a query = min(n' / n*, 1) n' / n       n texts selected, n' of them correct

The data's own solution is in each pool with the score 1. Selected are texts with a score strictly above the threshold
tau, the highest first, each once, at most m of a query; m grows from 1 until `target` texts are selected, to 64 at
most. A temperature is chosen on the first `dev` tasks: the one whose best tau (-1 to 1 by .01) has the highest mean
balance over queries with a selected text. Then all tasks are sampled at it, and tau is searched again for the whole
pool; the target for the first search is in proportion. At tau of 1 or more the data's own solution is lost, and only
correct texts with a step score are left.

The summary has temperature, tau, m, the balance, and the monitors: distinct correct texts of a task, the share of tasks
with one, and how often the text with the highest score is correct.

Differs: the lowest score of a step is read from a reward whose value it is (`steps`), in [0, 5] in the release and [-1,
1] as a fifth of it here; without one texts are scored by correctness alone. Best-of-K and reward discrimination are the
monitors' names; their formulas could not be read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._balance import Text, best, picked
from posttrain.components.selections._sampling import fitting, sample_all
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task

GRID = tuple(round(0.5 + 0.05 * i, 2) for i in range(15))
"""0.5 to 1.2 in steps of .05."""
OWN = "data"
"""Writer of the data's own solution."""


@frozen
class Balanced(Selection):
    """Replaces demonstrations by own solutions of the best balance."""

    reward: Reward
    """Verifies answers; status ``ok`` is correct."""
    steps: Reward | None = None
    """Its value is a fifth of the lowest score of a solution's steps; None scores by correctness alone."""
    temperatures: Annotated[tuple[PositiveFloat, ...], Field(min_length=1, max_length=32)] = GRID
    """Temperatures that are tried."""
    n: Annotated[int, Field(ge=1, le=256)] = 64
    """Rollouts of each task, at each temperature on the first tasks."""
    dev: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Tasks on which the temperature is chosen, from the first."""
    target: Annotated[int, Field(ge=1, le=100_000_000)] = 67_500
    """Texts that are wanted of all tasks."""
    wanted: Annotated[int, Field(ge=1, le=256)] = 8
    """n*: correct texts of a query beyond which more do not count."""
    max_tokens: PositiveInt = 64
    """Longest rollout."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, and those of the rewards."""
        steps = self.steps.roles if self.steps is not None else frozenset()
        return frozenset({"policy"}) | self.reward.roles | steps

    @property
    def writes(self) -> frozenset[str]:
        """Demonstrations."""
        return frozenset({"demonstrations"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """The chosen temperature, what each of them scores, and the scored texts of every task."""
        some = tasks[: self.dev]
        target = max(1, round(self.target * len(some) / max(len(tasks), 1)))
        tried: dict[float, tuple[float, float]] = {}
        for temperature in self.temperatures if len(self.temperatures) > 1 else ():
            pools = await self._pools(some, samplers, temperature)
            if any(pools):
                found = best([_read(pool) for pool in pools], target=target, wanted=self.wanted)
                tried[temperature] = (found.score, found.threshold)
        chosen = max(tried, key=lambda t: tried[t][0]) if tried else self.temperatures[0]
        rows = [{"temperature": t, "balance": score, "threshold": tau} for t, (score, tau) in tried.items()]
        return {"temperature": chosen, "tried": rows, "pools": await self._pools(tasks, samplers, chosen)}

    async def _pools(
        self, tasks: Sequence[Task], samplers: Mapping[str, Sampler], temperature: float
    ) -> list[list[dict[str, Any]]]:
        """Distinct scored texts of each task, the data's own first."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=temperature)
        groups = await sample_all(
            tasks, samplers, self.reward, role="policy", n=self.n, sampling=sampling, kind=self.kind
        )
        return [await self._pool(task, group, samplers) for task, group in zip(tasks, groups, strict=True)]

    async def _pool(self, task: Task, group: Group, samplers: Mapping[str, Sampler]) -> list[dict[str, Any]]:
        values = [0.0] * len(group)
        if self.steps is not None:
            graded = await scored(group, self.steps, RewardContext(samplers=samplers))
            values = [t.score.value if t.score is not None else float("nan") for t in graded]
        found: dict[str, dict[str, Any]] = {}
        if task.demonstrations:
            own = task.demonstrations[0]
            found[own] = {"text": own, "score": 1.0, "right": True, "writer": OWN, "sample": 0}
        for trajectory, value in zip(fitting(group, samplers["policy"]), values, strict=True):
            score = trajectory.score if trajectory is not None else None
            if trajectory is None or score is None or score.status == "error" or value != value:
                continue
            text = trajectory.completion
            if trajectory.stop_reason != "length" and text.strip():
                row = {"text": text, "score": value + trajectory.solved, "right": trajectory.solved}
                found.setdefault(text, {**row, "writer": "policy", "sample": trajectory.sample})
        return list(found.values())

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with the texts of the best threshold, in their order."""
        pools = measured["pools"]
        queries = [_read(pool) for pool in pools]
        if not any(t.score > -1.0 for texts in queries for t in texts):
            return Chosen(tasks=[], summary=f"none of {len(tasks)} tasks has a scored text")
        found = best(queries, target=self.target, wanted=self.wanted)
        chosen = []
        for task, pool, texts in zip(tasks, pools, queries, strict=True):
            kept = [text.text for text in picked(texts, found.threshold, found.most)]
            rows = {row["text"]: {name: row[name] for name in ("writer", "sample", "score")} for row in pool}
            if kept:
                fields = {**task.fields, "origin": [rows[text] for text in kept]}
                chosen.append(replace(task, demonstrations=tuple(kept), preferences=(), fields=fields))
        right = [sum(row["right"] and row["writer"] != OWN for row in pool) for pool in pools]
        firsts = [max(texts, key=lambda t: t.score).right for texts in queries if texts]
        return Chosen(
            tasks=chosen,
            summary=(
                f"temperature {measured['temperature']:g}, threshold {found.threshold:g}, at most {found.most} of a "
                f"task: {found.texts} texts of {len(chosen)} of {len(tasks)} tasks, balance {found.score:.3f}; "
                f"{sum(right) / max(len(right), 1):.2f} distinct correct texts a task, "
                f"{sum(n > 0 for n in right) / max(len(right), 1):.0%} of the tasks have one, and "
                f"{sum(firsts) / max(len(firsts), 1):.0%} of the best texts are correct"
            ),
        )


def _read(pool: Sequence[Mapping[str, Any]]) -> list[Text]:
    return [Text(text=row["text"], score=float(row["score"]), right=bool(row["right"])) for row in pool]
