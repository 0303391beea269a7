"""DUMP: categories by an upper confidence bound of their mean absolute advantage.

Source: Wang et al. 2025, arXiv:2504.09710, section 3 and Algorithm 1, and its released code
(github.com/ZhentingWang/DUMP). L of a category is the mean of the last `window` absolute advantages of its rollouts (0
when there are none), n the number of its items so far, and

    UCB = L + c sqrt(2 ln(sum of n + 1) / (n + 1))        P proportional to exp(UCB / temperature)

Every task of a step draws its category from P, with replacement, and a task of it, with replacement too. A category
that is solved, or cannot be, has advantages of 0, and keeps the share of its second term.

Differs: n counts what the paper counts, the tasks of a step (`count=prompts`), or the rollouts, as the release does,
with which exploration falls faster. The release also counts an entry per category at every validation, made of rewards
over lengths; it is no advantage and is left out. The advantage is computed from the scores, independent of the policy's
estimator.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.components.curricula._arms import Arms, alike, gains_of, report_of, seen_of, softmax
from posttrain.components.curricula._draws import Reals, generator
from posttrain.types import Group, Task


@frozen
class Ucb(Curriculum):
    """Boltzmann sampling of categories by an upper confidence bound."""

    features: Annotated[tuple[str, ...], Field(min_length=1)] = ("domain",)
    """Definition of a category: ``domain``, or names of fields of the tasks. Several are joined."""
    window: PositiveInt = 300
    """K: the newest absolute advantages that count for a category, one per rollout."""
    temperature: PositiveFloat = 0.1
    """Of the draw, in units of the bound, whose first term is below 1 for rewards of 0 and 1."""
    exploration: NonNegativeFloat = 1.0
    """c: the weight of the second term; 0 is none. The paper has no such factor."""
    count: Literal["prompts", "rollouts"] = "prompts"
    """What n counts: tasks of the steps (the paper), or rollouts (the release)."""
    draw: Literal["independent", "epochs"] = "independent"
    """Which task of a category is next: any of them each time (the release), or the next of shuffled epochs."""

    @property
    def needs_several(self) -> bool:
        """True: the advantage of a single rollout is 0."""
        return True

    def notes(self, tasks: Sequence[Task]) -> list[str]:
        """Tasks of one category."""
        return alike(self.kind, tasks, self.features)

    def start(self) -> State:
        """State before the first step: no advantages, no tasks drawn."""
        return {"window": {}, "n": {}, "position": {}}

    def bounds(self, state: State, names: Sequence[str]) -> Reals:
        """[A] the bound of each category."""
        mean_A = np.array([np.mean(state["window"][name]) if state["window"].get(name) else 0.0 for name in names])
        n_A = np.array([state["n"].get(name, 0) for name in names], np.float64)
        total = max(1.0, float(n_A.sum()))
        bound_A: Reals = mean_A + self.exploration * np.sqrt(2.0 * np.log(total + 1.0) / (n_A + 1.0))
        return bound_A

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Draw a category for each task, and a task of it."""
        arms = Arms.of(state, pool, self.features)
        share_A = softmax(self.bounds(state, arms.names), self.temperature)
        rng = generator(seed, step, refill, 0)
        drawn = rng.choice(len(arms.names), size=count, p=share_A)
        position = state["position"]
        if self.draw == "epochs":
            position, places = arms.next_in_epochs(drawn, position, seed)
        else:
            places = arms.independent(drawn, rng)
        return {**state, "position": position, **arms.state}, arms.picks(pool, places, share_A)

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Add the advantages of the step's rollouts. Rollouts whose scoring failed do not count."""
        window, n = dict(state["window"]), dict(state["n"])
        seen = seen_of(groups, self.features)
        for name, gains in gains_of(groups, self.features).items():
            window[name] = [*window.get(name, []), *(round(gain, 9) for gain in gains)][-self.window :]
            n[name] = n.get(name, 0) + (len(gains) if self.count == "rollouts" else int(seen[name][0]))
        return {**state, "window": window, "n": n, "seen": seen}

    def report(self, state: State) -> Mapping[str, float]:
        """By category: the bound, share of the tasks, and of correct rollouts."""
        names = list(state.get("arms", ()))
        own = report_of(state.get("seen", {}), names)
        if not any("/" in key for key in own):
            return own
        bounds = self.bounds(state, names).tolist()
        return own | {f"bound/{name}": bound for name, bound in zip(names, bounds, strict=True)}
