"""VAS: tasks in proportion to the variance of their outcomes and the diversity of their completions.

Source: MMR1, Leng et al. 2025, arXiv:2509.21268, sections 3 and 4 and Algorithm 1, and its released code
(github.com/LengSicong/MMR1). Before the first step and every `every` steps, n rollouts of every task are sampled and
scored by the current policy. With P the share that is correct,

    score = alpha P (1 - P) + beta diversity

The share `weighted` of a step's tasks is drawn in proportion to the score, with replacement, the rest uniformly.
Diversity is one minus self-BLEU of the completions (0 where all are the same) or distinct 3-grams over all 3-grams.

What a measurement samples is sampled and counted (``probe_tokens``): n times the number of tasks, each time.

Differs: self-BLEU counts for diversity with a minus, where the release adds it; texts have no padding. Where all scores
are 0 every task is equally likely. A task of which no rollout could be scored has score 0.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, Probe, State
from posttrain.components.curricula._diversity import distinct, unlike
from posttrain.components.curricula._draws import Reals, generator, shuffled_epochs
from posttrain.types import Group, Task

Share = Annotated[float, Field(ge=0.0, le=1.0)]
_MEASURES = {"self_bleu": unlike, "distinct": distinct}


@frozen
class Variance(Curriculum):
    """Draws tasks by the variance of their outcomes, measured anew now and then."""

    alpha: NonNegativeFloat = 0.8
    """Weight of P (1 - P), which is at most 0.25."""
    beta: NonNegativeFloat = 0.2
    """Weight of the diversity."""
    diversity: Literal["self_bleu", "distinct"] = "self_bleu"
    """One minus self-BLEU of 1- to 3-grams, or distinct 3-grams over all."""
    weighted: Share = 0.5
    """lambda: share of a step's tasks, rounded down, that is drawn by score."""
    every: PositiveInt = 35
    """Steps between two measurements: 35 in the main runs, 28 in the ablations, 4 in the released example."""
    n: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Rollouts of each task in a measurement: 32 in the main runs, 8 in the ablations; None takes as many as in
    training, which must be several."""
    rescale: bool = False
    """Whether scores are scaled to [0, 1] over the tasks, as in the release: then the task with the lowest is never
    drawn by score."""
    uniform: Literal["independent", "epochs"] = "independent"
    """How the rest is drawn: each task on its own (the paper), or the next of shuffled epochs (the release)."""

    @property
    def needs_several(self) -> bool:
        """Whether a measurement has as many rollouts of a task as a step of training."""
        return self.n is None

    def start(self) -> State:
        """State before the first step: nothing measured, no task drawn."""
        return {"position": 0}

    async def look(
        self, state: State, pool: Sequence[Task], probe: Probe, count: int, *, seed: int, step: int, refill: int = 0
    ) -> State:
        """Measure every task, in the steps in which that is due."""
        if refill or step % self.every:
            return state
        groups = await probe.collect(pool, self.n)
        solved_P = np.array([group.solved for group in groups])
        spread_P = solved_P * (1.0 - solved_P)
        measure = _MEASURES[self.diversity]
        differ_P = np.array([measure([t.completion_ids for t in g]) if self.beta and len(g) else 0.0 for g in groups])
        failed = sum(len(group) == 0 for group in groups)
        metrics = {"measured_variance": float(spread_P.mean()), "measured_diversity": float(differ_P.mean())}
        metrics |= {"unmeasured": float(failed)} if failed else {}
        return {**state, "score": self.alpha * spread_P + self.beta * differ_P, "measured": metrics}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Draw some tasks by score, the others uniformly."""
        rng = generator(seed, step, refill, 0)
        by_score = int(self.weighted * count) if "score" in state else 0
        share_P = self.shares(state["score"]) if by_score else np.zeros(0)
        drawn = rng.choice(len(pool), size=by_score, p=share_P) if by_score else np.zeros(0, np.int64)
        rest, position = count - by_score, state["position"]
        if self.uniform == "epochs":
            others, position = shuffled_epochs(len(pool), position, rest, [seed, 1]), position + rest
        else:
            others = rng.integers(len(pool), size=rest)
        picks = [Pick(task=pool[i], weight=float(share_P[i]), reason="variance") for i in drawn.tolist()]
        picks += [Pick(task=pool[i], weight=1.0 / len(pool), reason="uniform") for i in others.tolist()]
        return {**state, "position": position}, picks

    def shares(self, score_P: Reals) -> Reals:
        """[P] probability of each task in a draw by score."""
        weight_P = score_P - score_P.min() if self.rescale else score_P
        total = float(weight_P.sum())
        return weight_P / total if total > 0.0 else np.full(len(score_P), 1.0 / len(score_P))

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Nothing changes: scores are measured in `look` only."""
        return state

    def report(self, state: State) -> Mapping[str, float]:
        """Means of the newest measurement, and the number of tasks that the draw by score is as wide as."""
        if "score" not in state:
            return {}
        share_P = self.shares(state["score"])
        return {**state["measured"], "effective_tasks": float(1.0 / (share_P**2).sum())}
