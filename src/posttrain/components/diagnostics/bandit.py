"""On whose samples, and with what loss, does a policy move to a reward's peak? Measured on a bandit with 100 actions.

Source: Tajwar et al. 2024, arXiv:2404.14367, and the bandit of its released code (Asap7772/understanding-rlhf at
9d5844e5): 100 actions; a reference from a squashed Cauchy distribution, with its median at action 19 (and both ends,
where its tails are, likelier than what is near them); reward exp(-((a - peak) / width)^2) with a peak at 70, far from
the reference, or at 20, inside it. In each epoch N = 10 actions of each context are sampled, by the reference (offline)
or by the policy as it is (on policy), and used for `reuse` updates. Adam; 100 epochs.

Losses: `best_of_n`, `best_against_others` (with a tenth of the others' mean log-probability), `rwr` (exp(r / 0.1)),
`reinforce` (rewards normalized over all that was seen), `reinforce_positive` (without negative advantages), `ppo`, and
any preference loss on all pairs: ``dpo``, ``ipo``, or settings such as ``{kind: dpo, beta: 0.5}``. Which leads follows
the step size, so each gets the best of several. The expected reward is a sum over all actions, without sampling.

    posttrain diagnose bandit best_of_n rwr dpo ipo reinforce ppo peak=70

Differs: contexts are rows of a table, not inputs of a network; the reference is exact, not fitted to samples. Pairs of
equal rewards are left out (there the second sample wins). IPO's target is 1 / (2 beta), as in its paper; the release
has beta.

Measured here: 5 seeds, each loss with the best of three step sizes, offline / on policy. Peak 70: best-of-N .30 / .89,
RWR .86 / .97, DPO .05 / .64, IPO .21 / .85, REINFORCE and PPO .55 / .96: on policy is better for every loss, by .12
[.10, .13] (RWR) to .65 [.58, .71] (IPO). A negative gradient does not lead here: best-of-N and RWR on policy reach what
REINFORCE does. Peak 20: all between .88 and .96 offline, .98 and 1.00 on policy. Five updates on the same samples bring
DPO to .27 / .80 and RWR to .93 / .97, at a tenth of the step size on policy. On a table the worse half of the
reference's samples loses probability with every loss, as the rest gains it; with DPO most (11.9 nats).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, PositiveFloat

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._bandit import ACTIONS, LOSSES, Game, Loss, Trained, on_pairs, reward_K, train
from posttrain.components.preferences import PreferenceLoss
from posttrain.statistics.intervals import mean

ROWS: Final = (196,)
ARMS: Final = {"offline": False, "on_policy": True}


@frozen
class Bandit(Diagnostic):
    """Trains tables by each loss, offline and on policy."""

    subjects: ClassVar[tuple[str, ...]] = ("loss", "...")

    peak: Annotated[float, Field(ge=0.0, lt=ACTIONS)] = 70.0
    """Action with the highest reward."""
    width: PositiveFloat = 10.0
    """Width of the reward's peak, in actions."""
    samples: Annotated[int, Field(ge=2, le=1000)] = 10
    """N: actions of each context in an epoch."""
    epochs: Annotated[int, Field(ge=1, le=100_000)] = 100
    """How often is sampled."""
    reuse: Annotated[int, Field(ge=1, le=1000)] = 1
    """Updates on the samples of an epoch (1 to 15 in the paper)."""
    rates: Annotated[tuple[PositiveFloat, ...], Field(min_length=1, max_length=16)] = (0.03, 0.1, 0.3)
    """Step sizes, of which each loss gets the best, by its mean expected reward over seeds."""
    seeds: Annotated[int, Field(ge=2, le=1000)] = 5
    """Repetitions."""
    contexts: Annotated[int, Field(ge=1, le=1000)] = 10
    """Tables of each repetition."""

    def examine(self, *subjects: Subject) -> Finding:
        """Train with each loss, on both kinds of samples."""
        losses = {subject.name: _loss(subject) for subject in subjects}
        found = {name: {arm: self._best(loss, own) for arm, own in ARMS.items()} for name, loss in losses.items()}
        rows = {name: _row(arms) for name, arms in found.items()}
        values = {"peak": self.peak, "seeds": self.seeds, "reuse": self.reuse, "found": rows}
        return Finding(values=values, lines=self._lines(rows))

    def _best(self, loss: Loss, own: bool) -> tuple[float, Trained]:
        """The best step size, and what it gives."""
        game = Game(
            reward_K=reward_K(self.peak, self.width),
            samples=self.samples,
            epochs=self.epochs,
            reuse=self.reuse,
            seeds=self.seeds,
            contexts=self.contexts,
        )
        tried = [(rate, train(loss, game, own=own, rate=rate)) for rate in self.rates]
        return max(tried, key=lambda one: float(one[1].reward_S.mean()))

    def _lines(self, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """A table."""
        width = max(map(len, rows))
        lines = [
            f"reward's peak at action {self.peak:g}, reference's median at 19; {self.epochs} epochs of {self.samples} "
            f"samples, each used {self.reuse} times; {self.seeds} seeds: expected reward, mean and 95 % interval",
            f"{'':{width}}  {'offline':>20}  {'on policy':>20}  {'difference':>20}  rates; change of log p of the "
            "better and the worse half of the reference's samples, on policy",
        ]
        for name, row in rows.items():
            cells = [_cell(row[key]) for key in ("offline", "on_policy", "difference")]
            rates = f"{row['offline']['rate']:g}, {row['on_policy']['rate']:g}"
            moved = f"{row['on_policy']['chosen']:+.2f}, {row['on_policy']['rejected']:+.2f}"
            lines.append(f"{name:{width}}  {'  '.join(f'{cell:>20}' for cell in cells)}  {rates}; {moved}")
        return lines


def _loss(subject: Subject) -> Loss:
    """The loss of this name. Raises `UserError` for one that is neither built in nor a preference loss."""
    return LOSSES[subject.name] if subject.name in LOSSES else on_pairs(subject.component(PreferenceLoss))


def _row(arms: Mapping[str, tuple[float, Trained]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        arm: {
            **_estimate(trained.reward_S.tolist()),
            "rate": rate,
            "chosen": float(trained.chosen_S.mean()),
            "rejected": float(trained.rejected_S.mean()),
        }
        for arm, (rate, trained) in arms.items()
    }
    gaps = np.asarray(arms["on_policy"][1].reward_S - arms["offline"][1].reward_S)
    return {**found, "difference": _estimate(gaps.tolist())}


def _estimate(values: Sequence[float]) -> dict[str, float]:
    own = mean(values)
    return {"mean": own.value, "low": own.interval.low, "high": own.interval.high}


def _cell(row: Mapping[str, float]) -> str:
    return f"{row['mean']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
