"""Does a designed reward keep what is optimal, and does a learner find it sooner? Measured in small decision processes.

Source: R. Devidze's thesis on reward design, by the code of its three papers: EXPRD (NeurIPS 2021,
github.com/adishs/neurips2021_explicable-reward-design_code), ExploRS (NeurIPS 2022) and adaptive design (AAMAS 2024).

``original`` is the process's reward; ``potential`` adds the best potential, the optimal value. ``exprd`` is the most
informative reward that is not 0 in at most `states` states, and keeps the gaps of the original values; ``adaptive`` is
designed anew every `renew` episodes for the learner as it is. Both are linear programs. A learner may also shape by
itself: ``bonus`` for states that it left rarely, ``learned`` by a gradient of the original return, ``explors`` by both.

    posttrain diagnose invariance original bonus learned explors
    posttrain diagnose invariance original potential exprd adaptive process=rooms
    posttrain diagnose invariance original mine process=mine.json
    # JSON: transitions [S][A][S], reward [S][A], start [S], terminal, gamma, horizon, designs {"mine": [S][A]}

A design is kept to if every action that is optimal under it was optimal before. Of what a learner shapes by itself, the
share of repetitions in which that holds at the end is reported.

Differs: where several actions are optimal the teacher takes the first, and its equals may not become better, which one
program does; the release enumerates all optimal policies. Adaptive rewards are free in every state, not linear in given
features. The learner's step is `rate`, 1 for rewards of 1 (0.1 there), and the chain and rooms are smaller.

Measured here, five seeds of 400 episodes with 95 % intervals. Chain: the original reward leads to 37 % [4, 70] of the
best value, and to 80 % of it in no seed; EXPRD's, of five states, to 90 % [89, 92], after 232 episodes, the adaptive
one to 98 % [96, 99], after 40, the potential to 54 % [53, 55]. These keep what is optimal, and what the learner shapes
does not: the bonus alone leads to 88 % [85, 91], the learned one to 43 % [-9, 95], both to 78 % [52, 104], after 166
episodes; but after 1,200 both have fallen to 8 % [7, 10], the near reward, and the bonus has 94 % [92, 95], the
original reward 89 % [81, 97]. Rooms: the original reward leads to 94 % [92, 96] after 180 episodes, EXPRD's to 94 %
[87, 100] after 188, the adaptive one to 85 % [50, 120] after 100, the potential to 85 % [75, 94]: EXPRD helps where
rewards are far, and not here.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat

from posttrain.component import frozen, nearest
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._reward_designs import Teacher, adapted, exprd, informativeness, teacher_of
from posttrain.components.diagnostics._shaped_learner import Learned, learn
from posttrain.components.diagnostics._small_mdp import MDP, Reals, chain, optimal_SA, potential_SA, read_mdp, rooms
from posttrain.errors import UserError
from posttrain.statistics.intervals import mean

ROWS: Final = (204,)
PROCESSES: Final[Mapping[str, Callable[[], MDP]]] = {"chain": chain, "rooms": rooms}
OWN: Final = {
    "bonus": {"bonus": True, "learned": False},
    "learned": {"bonus": False, "learned": True},
    "explors": {"bonus": True, "learned": True},
}
NAMES: Final = ("original", "potential", "exprd", "adaptive", *OWN)
GOAL: Final = 0.8


@frozen
class Invariance(Diagnostic):
    """Compares designed rewards: what is optimal under them, and how soon a tabular learner finds it."""

    subjects: ClassVar[tuple[str, ...]] = ("design", "...")

    process: str = "chain"
    """``chain``, ``rooms``, or the path of a JSON file."""
    states: Annotated[int, Field(ge=1, le=400)] = 5
    """Most states in which EXPRD's reward is not 0."""
    largest: PositiveFloat | None = None
    """Bound of the absolute value of a designed reward; None takes the largest of the process's own."""
    sparsity: NonNegativeFloat = 1e-4
    """What EXPRD takes off for each unit of absolute reward, so that of equal designs the smallest is found."""
    renew: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Episodes after which the adaptive reward is designed anew."""
    episodes: Annotated[int, Field(ge=10, le=1_000_000)] = 400
    """Episodes of the learner."""
    seeds: Annotated[int, Field(ge=2, le=1000)] = 5
    """Repetitions."""
    rate: PositiveFloat = 1.0
    """Step size of the learner."""

    def examine(self, *subjects: Subject) -> Finding:
        """Design, compare and learn."""
        mdp, designs = self._process()
        if (best := mdp.best()) <= 0.0:
            raise UserError(
                f"{self.process}: the best return is {best:g}, and shares of it are compared; raise rewards"
            )
        for subject in subjects:
            if subject.name not in (*NAMES, *designs):
                raise UserError(f"no design '{subject.name}'; {nearest(subject.name, (*NAMES, *designs))}")
        rows = {subject.name: self._row(subject.name, mdp, designs) for subject in subjects}
        values = {"process": self.process, "best": best, "seeds": self.seeds, "found": rows}
        return Finding(values=values, lines=self._lines(mdp, rows))

    def _process(self) -> tuple[MDP, Mapping[str, Reals]]:
        if self.process in PROCESSES:
            return PROCESSES[self.process](), {}
        return read_mdp(Path(self.process))

    def _row(self, name: str, mdp: MDP, designs: Mapping[str, Reals]) -> dict[str, Any]:
        """What a design gives, and what a learner makes of it."""
        run = partial(learn, mdp, seeds=self.seeds, episodes=self.episodes, rate=self.rate)
        if name in OWN:
            return self._outcome(mdp, run(design=lambda _: mdp.reward_SA, **OWN[name]))
        if name == "adaptive":
            teacher = self._teacher(mdp)
            return self._outcome(mdp, run(design=lambda policy_SA: adapted(teacher, policy_SA), renew=self.renew))
        reward, chosen = self._design(name, mdp, designs)
        row = {**self._outcome(mdp, run(design=lambda _: reward)), "states": chosen}
        try:
            row["informativeness"] = informativeness(self._teacher(mdp), reward)
        except UserError:
            row["informativeness"] = None  # the process's own rewards are above the bound
        return row

    def _teacher(self, mdp: MDP) -> Teacher:
        return teacher_of(mdp, self.largest or float(np.abs(mdp.reward_SA).max()))

    def _design(self, name: str, mdp: MDP, designs: Mapping[str, Reals]) -> tuple[Reals, list[int]]:
        """A fixed reward, and the states in which it is not 0."""
        if name == "exprd":
            reward, _ = exprd(self._teacher(mdp), self.states, self.sparsity)
        elif name == "potential":
            reward = potential_SA(mdp)
        else:
            reward = mdp.reward_SA if name == "original" else np.where(mdp.terminal_S[:, None], 0.0, designs[name])
        return reward, [int(s) for s in np.flatnonzero((np.abs(reward) > 1e-9).any(1))]

    def _outcome(self, mdp: MDP, learned: Learned) -> dict[str, Any]:
        """Shares of the best value and what is kept, over repetitions."""
        share_NE = learned.value_NE / mdp.best()
        changed = [changed_states(mdp, reward) for reward in learned.reward_NSA]
        reached = [10 * (int(np.argmax(own >= GOAL)) + 1) for own in share_NE if (own >= GOAL).any()]
        found = mean(share_NE[:, -1].tolist())
        return {
            "kept": float(np.mean([count == 0 for count in changed])),
            "changed": float(np.mean(changed)),
            "share": {"mean": found.value, "low": found.interval.low, "high": found.interval.high},
            "reached": len(reached),
            "episodes_to": float(np.mean(reached)) if reached else None,
        }

    def _lines(self, mdp: MDP, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """A table."""
        width = max(map(len, rows))
        lines = [
            f"{self.process}: {int(mdp.reachable_S().sum())} states, best value {mdp.best():.3f}; {self.seeds} seeds "
            f"of {self.episodes} episodes",
            f"{'':{width}}  optimal actions kept (states changed)  share of the best value  reached {GOAL:.0%}  "
            "episodes to it  informativeness",
        ]
        for name, row in rows.items():
            share = row["share"]
            kept = f"{row['kept']:.0%} ({row['changed']:.1f})"
            part = f"{share['mean']:.2f} [{share['low']:.2f}, {share['high']:.2f}]"
            count = "-" if row["episodes_to"] is None else f"{row['episodes_to']:.0f}"
            value = row.get("informativeness")
            informed = "-" if value is None else f"{value:.4f}"
            reached = f"{row['reached']} of {self.seeds}"
            lines.append(f"{name:{width}}  {kept:>37}  {part:>23}  {reached:>11}  {count:>14}  {informed:>15}")
        return lines


def changed_states(mdp: MDP, reward_SA: Reals) -> int:
    """In how many states, of those that can be reached, an action is optimal that was not."""
    new = optimal_SA(mdp.q_SA(reward_SA)) & ~optimal_SA(mdp.q_SA())
    return int((new.any(1) & mdp.reachable_S()).sum())
