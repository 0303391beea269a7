"""MoPPS: a Beta posterior of every task's success rate, and Thompson sampling of the tasks near one half.

Source: Qu et al. 2025, arXiv:2507.04632, and its released code (github.com/thu-rllab/MoPPS, recipe/ours/mopps.py). With
prior Beta(a0, b0), k rollouts of a task in a step and their success rate s, the posterior of the tasks of the step is

    a <- lam a + (1 - lam) a0 + k s        b <- lam b + (1 - lam) b0 + k (1 - s)

A step has ``candidates`` times as many distinct candidates as tasks, the next ones of shuffled epochs. For each, one r
is drawn from its posterior, and those with the smallest (r - target)^2 are chosen, or with a `band` a random choice of
those within it, then the nearest to it. A posterior changes only when its task is observed: nothing decays between.

Differs: with one rollout of a task (k = 1) the release adds 8 to both a and b, a fault of operator precedence; here k
is the number of rollouts.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, PositiveFloat, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen, nearest
from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.components.curricula._draws import Places, Reals, candidates, generator, remember
from posttrain.components.curricula._success import Success, scored_of, success_of
from posttrain.errors import UserError
from posttrain.statistics.ranking import rank_correlation
from posttrain.types import Group, Task, value_of

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Thompson(Curriculum):
    """Draws each candidate's success rate from its posterior, and takes those nearest the target."""

    target: Share = 0.5
    """Success rate that is wanted."""
    band: tuple[Share, Share] | None = None
    """Success rates that are wanted alike, in place of the target; the release's are 0.3 and 0.7."""
    prior: tuple[PositiveFloat, PositiveFloat] = (1.0, 1.0)
    """a0 and b0 of the posterior of a task that was never observed."""
    keep: Share = 1.0
    """lam: share of what was observed before that stays at an observation. 1 is the release's MATH runs; 0.5, for a
    policy that changes fast, those of Countdown and Geometry3k."""
    candidates: Annotated[int, Field(ge=1, le=1000)] = 16
    """Candidates for each task of a step: 16 (MATH) or 8 in the released runs."""
    success: Success = "one"
    """What counts as success: ``one`` (a reward of at least 1, as in the release), ``solved``, ``reward`` (the mean,
    within [0, 1]) or ``part:NAME`` (a part of the reward)."""
    warm: str | None = None
    """Field of the tasks with (successes, failures) of stored rollouts, to start from; None starts from the prior."""
    warm_weight: PositiveFloat = 3.0
    """What each of these stored rollouts adds to the prior, as in the release."""

    @model_validator(mode="after")
    def check_band(self) -> Self:
        """Refuse a band that ends before it starts."""
        if self.band is not None and self.band[0] > self.band[1]:
            raise PydanticCustomError(
                "band", "curriculum.band goes from {low} to {high}; write the lower rate first", _ends(self.band)
            )
        return self

    @property
    def remembers_tasks(self) -> bool:
        """True."""
        return True

    def check(self, tasks: Sequence[Task], count: int) -> None:
        """Tasks must have the field of stored rollouts."""
        if self.warm is not None:
            _stored(tasks, self.warm)

    def start(self) -> State:
        """State before the first step: every task has the prior."""
        return {"position": 0, "asked": {}}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Take the candidates whose drawn success rates are nearest to what is wanted."""
        a_P, b_P = (state["a"], state["b"]) if "a" in state else self._prior(pool)
        position, place_C = candidates(len(pool), state["position"], self.candidates * count, count, [seed, 1])
        rng = generator(seed, step, refill, 2)
        r_C = rng.beta(a_P[place_C], b_P[place_C])
        chosen = self._choose(r_C, count, rng)
        places = place_C[chosen]
        picks = [
            Pick(task=pool[place], weight=round(r, 6), reason=self._reason(place, a_P, b_P, state))
            for place, r in zip(places.tolist(), r_C[chosen].tolist(), strict=True)
        ]
        asked = remember(state["asked"], pool, places)
        seen_P = state["seen"] if "seen" in state else np.zeros(len(pool), np.int32)
        return {**state, "position": position, "a": a_P, "b": b_P, "seen": seen_P, "asked": asked}, picks

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Update the posteriors of the step's tasks. Rollouts whose scoring failed do not count."""
        a_P, b_P, seen_P = state["a"].copy(), state["b"].copy(), state["seen"].copy()
        predicted, observed, between = [], [], 0
        for key, trajectories in scored_of(groups).items():
            place = state["asked"].get(key)
            if place is None:
                continue
            k, s = len(trajectories), min(max(success_of(trajectories, self.success), 0.0), 1.0)
            between += any(value_of(t) not in (0.0, 1.0) for t in trajectories)
            predicted.append(float(a_P[place] / (a_P[place] + b_P[place])))
            observed.append(s)
            a_P[place] = self.keep * a_P[place] + (1.0 - self.keep) * self.prior[0] + k * s
            b_P[place] = self.keep * b_P[place] + (1.0 - self.keep) * self.prior[1] + k * (1.0 - s)
            seen_P[place] += 1
        metrics = {"between_0_and_1": float(between)} if between else {}
        if predicted:
            error = np.abs(np.array(predicted) - np.array(observed)).mean()
            metrics |= {"predicted": float(np.mean(predicted)), "prediction_error": float(error)}
            correlation = rank_correlation(predicted, observed)
            metrics |= {"prediction_correlation": correlation} if correlation is not None else {}
        return {**state, "a": a_P, "b": b_P, "seen": seen_P, "asked": {}, "metrics": metrics}

    def report(self, state: State) -> Mapping[str, float]:
        """Prediction and outcome of the step's tasks; visits per task of the pool, and the share never seen.

        ``between_0_and_1`` counts the tasks with rewards other than 0 and 1, of which a Beta needs a success rate.
        """
        if "seen" not in state:
            return {}
        seen_P = state["seen"]
        return {**state.get("metrics", {}), "visits": float(seen_P.mean()), "unseen": float((seen_P == 0).mean())}

    def _choose(self, r_C: Reals, count: int, rng: np.random.Generator) -> Places:
        """Indices of the chosen candidates."""
        if self.band is None:
            return np.argsort((r_C - self.target) ** 2, kind="stable")[:count]
        low, high = self.band
        within = np.flatnonzero((r_C >= low) & (r_C <= high))
        if len(within) >= count:
            return np.asarray(rng.choice(within, size=count, replace=False))
        distance_C = np.maximum(low - r_C, r_C - high).clip(min=0.0)
        return np.argsort(distance_C, kind="stable")[:count]

    def _prior(self, pool: Sequence[Task]) -> tuple[Reals, Reals]:
        """Both parameters of every task before it is observed."""
        stored_PK = _stored(pool, self.warm) if self.warm is not None else np.zeros((len(pool), 2))
        both_PK = np.array(self.prior) + self.warm_weight * stored_PK
        return both_PK[:, 0].copy(), both_PK[:, 1].copy()

    def _reason(self, place: int, a_P: Reals, b_P: Reals, state: State) -> str:
        """The posterior that the success rate was drawn from, and how often the task was seen."""
        visits = int(state["seen"][place]) if "seen" in state else 0
        return f"Beta({a_P[place]:.3g}, {b_P[place]:.3g}), {visits} visits"


def _stored(tasks: Sequence[Task], name: str) -> Reals:
    """[P, 2] successes and failures of stored rollouts. Raises `UserError` for a task without them."""
    rows = []
    for task in tasks:
        if name not in task.fields:
            raise UserError(
                f"curriculum.warm names '{name}', but task {task.key} has no such field; {nearest(name, task.fields)}"
            )
        row: Any = task.fields[name]
        numbers = isinstance(row, Sequence) and len(row) == 2 and all(isinstance(x, int | float) for x in row)
        if not numbers or any(x < 0 for x in row):
            raise UserError(f"field '{name}' of task {task.key} is {row!r}; it must be [successes, failures]")
        rows.append(row)
    return np.array(rows, np.float64)


def _ends(band: tuple[float, float]) -> dict[str, Any]:
    return {"low": band[0], "high": band[1]}
