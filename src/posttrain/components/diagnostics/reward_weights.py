"""Can weights of an auxiliary reward be learned so that it helps where it is right and does no harm where it is not?

Source: BARFI, Gupta et al. 2023, arXiv:2310.19007, of which only abstracts and summaries could be read. The reward that
a policy learns from is phi_1 + phi_2 r_p + phi_3 r_a, its discount sigmoid(v) is learned too. The inner level is the
fixed point of a policy gradient with decay; the outer level raises the return of the primary reward r_p there, less a
cost of the discount, by the implicit function theorem, with H^-1 as a sum (`_outer_level`), or by finite differences.

Measured for an auxiliary reward: the policy that each of these leads to: ``primary`` (weights 0, 1, 0), ``sum`` (0, 1,
1), weights learned from both, and with a process of its own name (``corridor``) a ``potential``, which keeps what is
optimal. The default process is a bandit with the rewards 1, 0.9 and 0.

    posttrain diagnose reward_weights misleading helpful constant '[0, 0.5, 2]'
    posttrain diagnose reward_weights half_wrong right wrong none process=corridor
    posttrain diagnose reward_weights mine process=mine.json
    # JSON: transitions [S][A][S], reward [S][A], start [S], terminal, gamma, designs {"mine": [S][A]}

``random`` draws an auxiliary reward of the bandit from [0, 1] for each repetition; in the corridor each cell has as
heuristic its distance to the end, which has the wrong sign in all, in none or in half of them, drawn anew. ``constant``
and, in the corridor, ``none`` are controls: what the other weights gain alone.

Differs: policies are tables and gradients are sums over all states, so that there are no samples, no stored data and no
importance weights, and no language model is trained; weights do not depend on the state. The stage ``outer`` learns
weights around a policy of a language model (`posttrain run barfi`). The original's starting weights and regulariser
could not be checked.

Measured (five draws, mean and 95 % interval; the rest is exact): most of the gain is that weights grow against the
decay, which the controls show. In the bandit the primary reward alone leads to 0.864, its learned weight beside a
constant to 0.959; beside a helpful reward to 0.968 (weight 2.7), a misleading one to 0.968 (weight -2.4), a random one
to 0.965 [0.959, 0.970]. Learning is local: from the sum with the misleading reward, 0.851, it stays at the second arm,
0.879. In the corridor a heuristic that is wrong in half of the cells makes the sum fall from 0.634 to 0.037 [-0.021,
0.094], a right one to 0.023, and the potential stays at 0.634; weights learned from the sum lead to 0.808 [0.801,
0.814], and the control without a heuristic has 0.808 as well: it does no harm then, and no good.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, TypeAdapter, ValidationError

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._outer_level import HYPERGRADIENTS, Outer, bandit, corridor, raised
from posttrain.components.diagnostics._small_mdp import MDP, Reals, optimal_SA, read_mdp
from posttrain.errors import UserError
from posttrain.statistics.intervals import mean

ROWS: Final = ()
PRIMARY: Final = (1.0, 0.9, 0.0)
EXTRA: Final = {"misleading": (0.0, 1.0, 0.2), "helpful": (0.5, 0.0, 0.0), "constant": (1.0, 1.0, 1.0)}
WRONG: Final = {"none": 0.0, "right": 0.0, "half_wrong": 0.5, "wrong": 1.0}
STARTS: Final = {"primary": (0.0, 1.0, 0.0), "sum": (0.0, 1.0, 1.0)}
_ARMS = TypeAdapter(tuple[float, float, float])


@frozen
class RewardWeights(Diagnostic):
    """Learns the weights of an auxiliary reward, and compares with fixed ones."""

    subjects: ClassVar[tuple[str, ...]] = ("auxiliary", "...")

    process: str = "bandit"
    """``bandit``, ``corridor``, or the path of a JSON file."""
    steps: Annotated[int, Field(ge=1, le=100_000)] = 60
    """Outer steps."""
    rate: PositiveFloat = 5.0
    """Step size of the weights."""
    decay: PositiveFloat = 0.1
    """Of the policy's logits in the inner updates; without it there is no fixed point."""
    discount_cost: NonNegativeFloat = 0.0
    """What the outer level takes off for a discount of 1."""
    hypergradient: Literal["implicit", "finite_differences"] = "implicit"
    """How the outer gradient is found."""
    seeds: Annotated[int, Field(ge=2, le=1000)] = 5
    """Repetitions where something is drawn; the rest is exact."""

    def examine(self, *subjects: Subject) -> Finding:
        """Solve the inner problem for fixed weights, and learn them from each start."""
        rows = {subject.name: self._row(subject.name) for subject in subjects}
        lines = [
            f"{self.process}: return of the primary reward that a policy converges to, weights (constant, primary, "
            "auxiliary) and the discount",
        ]
        width = max(map(len, rows))
        for name, row in rows.items():
            lines += [f"{name:{width}}  {arm:22}  {_text(one)}" for arm, one in row.items()]
        return Finding(values={"process": self.process, "found": rows}, lines=lines)

    def _row(self, name: str) -> dict[str, Any]:
        """Each arm's numbers, over repetitions."""
        drawn = name in ("random", "half_wrong")
        found = [self._arms(name, seed) for seed in range(self.seeds if drawn else 1)]
        return {arm: _summary([one[arm] for one in found]) for arm in found[0]}

    def _arms(self, name: str, seed: int) -> dict[str, Sequence[float]]:
        """J, the probability of optimal actions at the start, three weights and the discount, of each arm."""
        mdp, extra, potential = self._problem(name, seed)
        outer = Outer(mdp=mdp, extra_SA=extra, decay=self.decay)
        found = {}
        for start, fixed in STARTS.items():
            weights = np.array([*fixed, np.log(mdp.gamma / (1.0 - mdp.gamma))])
            found[start] = _numbers(outer, *self._raised(outer, weights, 0))
            found[f"learned from {start}"] = _numbers(outer, *self._raised(outer, weights, self.steps))
        if potential is not None:
            shaped = Outer(mdp=mdp, extra_SA=potential, decay=self.decay)
            weights = np.array([*STARTS["sum"], np.log(mdp.gamma / (1.0 - mdp.gamma))])
            found["potential"] = _numbers(shaped, *self._raised(shaped, weights, 0))
        return found

    def _raised(self, outer: Outer, weights: Reals, steps: int) -> Any:
        slope = HYPERGRADIENTS[self.hypergradient]
        return raised(outer, weights, slope, steps=steps, rate=self.rate, discount_cost=self.discount_cost)

    def _problem(self, name: str, seed: int) -> tuple[MDP, Reals, Reals | None]:
        """The process, the auxiliary reward, and the potential reward of a heuristic."""
        if self.process == "corridor":
            if name not in WRONG:
                raise UserError(f"the corridor has no heuristic '{name}', only {', '.join(WRONG)}")
            mdp = corridor()
            extra, potential = heuristic(mdp, WRONG[name], np.random.default_rng([seed, 5]))
            size = float(name != "none")
            return mdp, size * extra, size * potential
        if self.process == "bandit":
            arms = np.random.default_rng([seed, 5]).random(3) if name == "random" else np.array(_arms_of(name))
            return bandit(np.array(PRIMARY)), np.stack([arms, np.zeros(3)]), None
        mdp, designs = read_mdp(Path(self.process))
        if name not in designs or mdp.gamma == 0.0:
            raise UserError(
                f"{self.process}: designs has {', '.join(designs) or 'nothing'}, no '{name}', or gamma is 0; the "
                "auxiliary reward is a design, and gamma is where the learned discount starts"
            )
        return mdp, np.where(mdp.terminal_S[:, None], 0.0, designs[name]), None


def heuristic(mdp: MDP, wrong: float, rng: np.random.Generator) -> tuple[Reals, Reals]:
    """[S, A] a bonus for the next cell by its nearness to the end, and the same as a potential.

    The share `wrong` of the cells has the wrong sign; the end has 0.
    """
    cells = len(mdp.start_S)
    near_S = np.arange(cells) / (cells - 1) * ~mdp.terminal_S
    near_S[rng.permutation(cells - 1)[: round(wrong * (cells - 1))]] *= -1.0
    inside = ~mdp.terminal_S[:, None]
    ahead = mdp.move_SAS @ near_S
    return np.asarray(ahead * inside), np.asarray((mdp.gamma * ahead - near_S[:, None]) * inside)


def _arms_of(name: str) -> Sequence[float]:
    """The auxiliary reward of each arm. Raises `UserError` for neither a name nor three numbers."""
    if name in EXTRA:
        return EXTRA[name]
    try:
        return _ARMS.validate_json(name)
    except ValidationError:
        raise UserError(
            f"'{name}' is no auxiliary reward of the bandit: {', '.join(EXTRA)}, random, or three numbers such as "
            "[0, 1, 0.2]"
        ) from None


def _numbers(outer: Outer, weights: Any, theta: Any) -> Sequence[float]:
    mdp = outer.mdp
    best = optimal_SA(mdp.q_SA())
    right = float(mdp.start_S @ (theta.softmax(1).numpy() * best).sum(1))
    return [float(outer.value(theta)), right, *weights[:3].tolist(), float(weights[3].sigmoid())]


def _summary(found: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Means; of the return an interval where something was drawn."""
    values = [one[0] for one in found]
    own = mean(values) if len(values) > 1 else None
    middle = np.mean(found, 0)
    return {
        "return": float(middle[0]),
        "interval": [own.interval.low, own.interval.high] if own else None,
        "optimal": float(middle[1]),
        "weights": middle[2:5].tolist(),
        "discount": float(middle[5]),
    }


def _text(row: Mapping[str, Any]) -> str:
    between = f" [{row['interval'][0]:.3f}, {row['interval'][1]:.3f}]" if row["interval"] else ""
    weights = ", ".join(f"{x:.2f}" for x in row["weights"])
    return f"{row['return']:.3f}{between}, optimal at first {row['optimal']:.3f}; ({weights}), {row['discount']:.3f}"
