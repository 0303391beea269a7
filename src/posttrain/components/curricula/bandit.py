"""SEC: a bandit over categories of tasks, whose reward is their mean absolute advantage.

Source: Self-Evolving Curriculum, Chen et al. 2025, arXiv:2505.14970, section 3; defaults from the authors' released
runs. The gain of a category is the mean over its rollouts of |A|, with A the group-normalized advantage of GRPO. Then Q
<- (1 - rate) Q + rate * gain, from Q = 0. The next step draws the category of every task with probability proportional
to exp(Q / temperature). With rewards of 0 and 1 the gain is largest where half of the rollouts are correct, and 0 where
all or none are. Such a category keeps the share of Q = 0, so that it is still drawn when the policy changes.

Differs: the release shuffles the tasks of all categories anew when one of them runs short; here each category goes
through its own tasks without replacement, and starts again when they are used up. The advantage is computed from the
scores, independent of the policy's estimator.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.components.curricula._arms import Arms, alike, gains_of, report_of, seen_of, softmax
from posttrain.types import Group, Task

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Bandit(Curriculum):
    """Boltzmann sampling of categories by a running mean of their absolute advantages."""

    features: Annotated[tuple[str, ...], Field(min_length=1)] = ("domain",)
    """Definition of a category: ``domain``, or names of fields of the tasks. Several are joined: every combination
    among the tasks is a category."""
    rate: Share = 0.5
    """Share of the newest gain in Q, in (0, 1]; the released runs use 0.5, the release's default is 0.1."""
    temperature: PositiveFloat = 1.0
    """Of the draw, in units of Q. With rewards of 0 and 1, Q is below 1, so that 1 is nearly uniform; the released runs
    use 1 (Countdown), 0.4 (MATH) and 0.2 (two features)."""
    unvisited: Literal["keep", "decay"] = "keep"
    """Q of a category without a task in the step: unchanged (the paper), or updated with a gain of 0 (the release)."""

    @property
    def needs_several(self) -> bool:
        """True: the advantage of a single rollout is 0."""
        return True

    def notes(self, tasks: Sequence[Task]) -> list[str]:
        """Tasks of one category."""
        return alike(self.kind, tasks, self.features)

    def start(self) -> State:
        """State before the first step: no gains, no tasks drawn."""
        return {"q": {}, "position": {}}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Draw a category for each task, with replacement, and take that category's next task."""
        arms = Arms.of(state, pool, self.features)
        q_A = np.array([state["q"].get(name, 0.0) for name in arms.names])
        share_A = softmax(q_A, self.temperature)
        rng = np.random.default_rng([seed, 0, step, *[refill] * (refill > 0)])
        drawn = rng.choice(len(arms.names), size=count, p=share_A)
        position, places = arms.next_in_epochs(drawn, state["position"], seed)
        q = dict(zip(arms.names, q_A.tolist(), strict=True))
        return {**state, "q": q, "position": position, **arms.state}, arms.picks(pool, places, share_A)

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Update Q of every category by the gain of its rollouts. Rollouts whose scoring failed do not count."""
        gains = gains_of(groups, self.features)
        q = dict(state["q"])
        for name in sorted({*q, *gains}):
            if name in gains or self.unvisited == "decay":
                gain = float(np.mean(gains[name])) if name in gains else 0.0
                q[name] = (1.0 - self.rate) * q.get(name, 0.0) + self.rate * gain
        return {**state, "q": q, "seen": seen_of(groups, self.features)}

    def report(self, state: State) -> Mapping[str, float]:
        """By category: Q, share of the tasks, and of correct rollouts."""
        names = sorted(state["q"])
        own = report_of(state.get("seen", {}), names)
        return own | ({f"q/{name}": state["q"][name] for name in names} if any("/" in key for key in own) else {})
