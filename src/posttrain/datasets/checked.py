"""Checked rollouts as data of a later stage: what a model wrote and a verifier scored becomes pairs or demonstrations.

    pairs       a correct rollout preferred to an incorrect one, if both exist (Tulu 3, arXiv:2411.15124; Qwen2.5,
                arXiv:2412.15115)
    shortest    the shortest correct rollout preferred to the longest that is at least 1.5 times as long, right or wrong
                (Kimi k1.5, arXiv:2501.12599)
    best_of     the rollout with the highest score, in place of the given answer (RedOne 2.0, arXiv:2511.07070)
    solved      every correct rollout, in place of the given answer (CPL, arXiv:2409.08642: at most four of a question)
    modes       the shortest correct rollout of the mode that succeeds, thinking or not, with the mode (KAT-V1,
                arXiv:2507.08297)

Only rollouts that ended and could be scored are used, each text once. What is made states where it is from (`origin`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from posttrain.types import Preference, Trajectory

Use = Literal["pairs", "shortest", "best_of", "solved", "modes"]
"""What rollouts are made into."""
FACTOR: Final = 1.5
"""Least length of a rejected rollout, in lengths of the chosen one, for `shortest`."""
TIE: Final = 0.1
"""Difference of two modes' success rates below which the shorter mode, without thinking, is taken."""
THINKING: Final = r"(?s)<think>.*?\S.*?</think>"
"""A completion that thinks, by default."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One scored completion."""

    text: str
    tokens: int
    value: float
    right: bool
    sample: int
    """Its number among the rollouts of the task."""
    writer: str = "policy"
    """Who wrote it: a role, or the name of a model."""

    @property
    def origin(self) -> dict[str, Any]:
        """Where it is from, as JSON."""
        return {"writer": self.writer, "sample": self.sample, "value": self.value}


@dataclass(frozen=True, kw_only=True)
class Made:
    """What the rollouts of one task were made into."""

    preferences: tuple[Preference, ...] = ()
    demonstrations: tuple[str, ...] = ()
    mode: str | None = None
    """For `modes`: ``on`` or ``off``."""
    origin: tuple[dict[str, Any], ...] = ()
    """Of each text, in order; of a pair first the chosen one."""


def checked_of(trajectories: Sequence[Trajectory | None], writer: str = "policy", first: int = 0) -> list[Checked]:
    """The scored trajectories that ended, each text once, numbered from `first`; None stands for one to leave out."""
    found: dict[str, Checked] = {}
    for place, trajectory in enumerate(trajectories):
        score = trajectory.score if trajectory is not None else None
        if trajectory is None or score is None or score.status == "error" or trajectory.stop_reason == "length":
            continue
        rollout = Checked(
            text=trajectory.completion,
            tokens=trajectory.num_trained,
            value=score.value,
            right=score.status == "ok",
            sample=first + place,
            writer=writer,
        )
        found.setdefault(rollout.text, rollout)
    return list(found.values())


def make(rollouts: Sequence[Checked], use: Use, *, most: int = 1, thinking: str = THINKING) -> Made | None:
    """The data that the rollouts of a task give, at most `most` texts or pairs; None where they give none."""
    if use == "pairs":
        right, wrong = ([a for a in rollouts if a.right == right] for right in (True, False))
        return _preferred(list(zip(right, wrong, strict=False))[:most])
    if use == "shortest":
        return _preferred(_short_and_long(rollouts)[:most])
    if use == "modes":
        return _by_mode(rollouts, re.compile(thinking))
    if use == "solved":
        rollouts = [rollout for rollout in rollouts if rollout.right]
    best = sorted(rollouts, key=lambda rollout: -rollout.value)[:most]
    return Made(demonstrations=tuple(a.text for a in best), origin=tuple(a.origin for a in best)) if best else None


def reason_of(rollouts: Sequence[Checked], use: Use, *, thinking: str = THINKING) -> str:
    """Why the rollouts of a task, of which `make` gives nothing, give nothing."""
    if not rollouts:
        return "no rollout ended and could be scored"
    if use == "modes" and len({bool(re.search(thinking, rollout.text)) for rollout in rollouts}) == 1:
        return "every rollout thinks" if re.search(thinking, rollouts[0].text) else "no rollout thinks"
    if not any(rollout.right for rollout in rollouts):
        return "no rollout is correct"
    return {
        "pairs": "every rollout is correct",
        "shortest": f"no rollout is {FACTOR:g} times as long as the shortest correct one",
        "modes": "no rollout of the better mode is correct",
    }[use]


def _preferred(pairs: Sequence[tuple[Checked, Checked]]) -> Made | None:
    if not pairs:
        return None
    return Made(
        preferences=tuple(Preference(chosen=chosen.text, rejected=rejected.text) for chosen, rejected in pairs),
        origin=tuple(rollout.origin for pair in pairs for rollout in pair),
    )


def _short_and_long(rollouts: Sequence[Checked]) -> list[tuple[Checked, Checked]]:
    """The shortest correct rollout with each that is long enough beside it, the longest first."""
    right = [rollout for rollout in rollouts if rollout.right]
    if not right:
        return []
    shortest = min(right, key=lambda rollout: rollout.tokens)
    long = [rollout for rollout in rollouts if rollout.tokens >= FACTOR * shortest.tokens and rollout is not shortest]
    return [(shortest, other) for other in sorted(long, key=lambda rollout: -rollout.tokens)]


def _by_mode(rollouts: Sequence[Checked], thinking: re.Pattern[str]) -> Made | None:
    """The shortest correct rollout of the mode with the higher success rate; None where either mode has no rollout."""
    by_mode: dict[str, list[Checked]] = {"on": [], "off": []}
    for rollout in rollouts:
        by_mode["on" if thinking.search(rollout.text) else "off"].append(rollout)
    if not all(by_mode.values()):
        return None
    rates = {mode: sum(a.right for a in own) / len(own) for mode, own in by_mode.items()}
    # The difference of two rates of few rollouts is not exact: a tie of .1 may come out as .0999...
    mode = "on" if rates["on"] - rates["off"] >= TIE - 1e-9 else "off"
    right = [rollout for rollout in by_mode[mode] if rollout.right]
    if not right:
        return None
    shortest = min(right, key=lambda rollout: rollout.tokens)
    return Made(demonstrations=(shortest.text,), mode=mode, origin=({**shortest.origin, "rates": rates},))
