"""Rollouts of earlier steps in the batch of a step, beside fresh ones.

Source: ReMix, arXiv:2507.06892: each place of a batch has, with probability p, a rollout of one of the last N policies
in place of a fresh one, until step T; from then on all are fresh. The update-to-data ratio, `learner.epochs` here, is
above 1 until T as well.

Differs: a place is that of a group, since GRPO compares its rollouts; a group is drawn at most once in a step. Where no
earlier rollouts are left, a place has a fresh group. Earlier rollouts keep their scores.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.stages.rl.waiting import pack_groups, unpack_groups
from posttrain.types import Group, Task

_KEY = 0x5265
"""Separates these draws from others of the same seed and step."""

Memory = Sequence[Mapping[str, Any]]
"""For each of the last steps its number and its groups as JSON, the oldest first."""


@frozen
class Replay:
    """How groups of earlier steps come into a batch."""

    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.4
    """p: probability that a place of the batch has an earlier group (0.4 in the paper)."""
    window: Annotated[int, Field(ge=1, le=100)] = 2
    """N: number of the last steps whose groups are kept (2 in the paper)."""
    steps: PositiveInt | None = 50
    """T: steps with earlier groups (50 with GRPO in the paper); None for all of the stage."""
    epochs_after: PositiveInt | None = 1
    """Epochs over each batch after step T; None for those of the learner, as before it. A schedule of the learning rate
    is spread over the learner's."""

    def active(self, step: int) -> bool:
        """Whether a step, counted from 0, may have earlier groups."""
        return self.steps is None or step < self.steps

    def epochs(self, step: int) -> int | None:
        """Epochs over the batch of a step; None for those of the learner."""
        return None if self.active(step) else self.epochs_after

    def draw(self, memory: Memory, tasks: Sequence[Task], count: int, *, seed: int, step: int) -> list[Group]:
        """The earlier groups of a step of `count` places; the fact `Earlier` has their age."""
        if not self.active(step) or not memory:
            return []
        rng = np.random.default_rng([seed, step, _KEY])
        ages = [step - kept["step"] for kept in memory]
        left = [list(rng.permutation(len(kept["groups"]))) for kept in memory]
        drawn: list[list[int]] = [[] for _ in memory]
        for uniform in rng.random(count):
            known = [policy for policy, groups in enumerate(left) if groups]
            if uniform < self.share and known:
                policy = known[int(rng.integers(len(known)))]
                drawn[policy].append(int(left[policy].pop()))
        return [
            group
            for kept, age, places in zip(memory, ages, drawn, strict=True)
            for group in unpack_groups([kept["groups"][place] for place in places], tasks, age=age)
        ]

    def keep(self, memory: Memory, groups: Sequence[Group], step: int) -> list[Mapping[str, Any]]:
        """The memory after a step with these fresh groups."""
        if not self.active(step + 1):
            return []
        kept = [*memory, {"step": step, "groups": pack_groups(groups)}]
        return [one for one in kept if step + 1 - one["step"] <= self.window]
