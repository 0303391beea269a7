"""Shares of domains for the next run, from finished runs with other shares and their scores.

Source: MoDoMoDo, arXiv:2505.24871, section 3 and algorithms 1 to 4; `posttrain.statistics.mixtures` has the formulas.

    posttrain run modomodo curriculum.shares='{sums: 1}'     # each domain alone, all but one, all: the runs to begin
    with posttrain diagnose mixture runs/modomodo-*               # the best so far, and proposals by every rule

A run's shares are those of its curriculum ``by_share``, or equal where it has none; its score is a number of its
``summary.json``, by default the held-out accuracy at the end. The quadratic surface is fitted where there are enough
runs, m (m + 1) / 2 for m domains; twice as many are advised, since at the least number its maximum is seldom near the
best mixture.

Differs: the rule `norm` needs the runs that leave one domain out, and is left out without them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.errors import UserError
from posttrain.errors.foreign import guard, parse_json
from posttrain.statistics import mixtures
from posttrain.statistics.mixtures import Reals


@frozen
class MixtureOfRuns(Diagnostic):
    """Proposes shares of domains."""

    subjects: ClassVar[tuple[str, ...]] = ("run", "...")

    measure: str = "accuracy_after"
    """Score of a run: a number of its ``summary.json``."""
    inside: str | None = None
    """A second score for the rule `alpha`, on the domains that are trained on; None takes `measure`."""
    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Share of the second score in the rule `alpha`."""
    top: Annotated[int, Field(ge=1, le=100)] = 3
    """Proposals of the quadratic surface."""
    seed: NonNegativeInt = 0
    """Of the splits and candidates."""

    def examine(self, *subjects: Subject) -> Finding:
        """Read the runs and propose."""
        runs = [self._run(Path(subject.name)) for subject in subjects]
        domains = sorted({name for shares, _, _ in runs for name in shares})
        if len(domains) < 2:
            raise UserError(
                f"the runs have {'one domain' if domains else 'no curriculum by_share'}; shares are of two or more; "
                "give runs of modomodo with curriculum.shares={NAME: SHARE, ...}"
            )
        rows = mixtures.as_rows([shares or dict.fromkeys(domains, 1.0) for shares, _, _ in runs], domains)
        score_R, inside_R = (np.array([run[i] for run in runs]) for i in (1, 2))
        proposed = self._proposed(rows, score_R, inside_R)
        best = int(score_R.argmax())
        named = {rule: dict(zip(domains, np.round(row, 4).tolist(), strict=True)) for rule, row in proposed.items()}
        first = _shown(rows[best], domains)
        lines = [f"{len(runs)} runs, {len(domains)} domains; best so far {score_R[best]:.3f} with {first}"]
        lines += [f"{rule:12} {_shown(row, domains)}" for rule, row in proposed.items()]
        enough = mixtures.needed(len(domains))
        if len(runs) < 2 * enough:
            why = "has no unique maximum" if len(runs) < enough else "is seldom near the best mixture"
            lines.append(f"with {len(runs)} runs the quadratic surface {why}; {2 * enough} are advised")
        return Finding(values={"domains": domains, "runs": len(runs), "proposed": named}, lines=lines)

    def _proposed(self, rows: Reals, score_R: Reals, inside_R: Reals) -> dict[str, Reals]:
        """Shares by rule."""
        found = {
            "alpha": mixtures.alpha(rows, inside_R, score_R, self.alpha),
            "coli": mixtures.coli(rows, score_R),
        }
        count = rows.shape[1]
        without = {int(np.flatnonzero(row == 0)[0]): r for r, row in enumerate(rows) if (row == 0).sum() == 1}
        if count > 2 and len(without) == count:
            found["norm"] = mixtures.norm(score_R[[without[m] for m in range(count)]])
        if len(rows) >= mixtures.needed(count):
            best, _, _ = mixtures.quadratic(rows, score_R, seed=self.seed, top=self.top)
            found |= {f"quadratic {place + 1}": row for place, row in enumerate(best)}
        return found

    def _run(self, folder: Path) -> tuple[dict[str, float], float, float]:
        """Shares and both scores of a run. Raises `UserError` for what is no finished run."""
        from ruamel.yaml import YAML

        with guard(f"{folder} is not a finished run, whose summary.json and recipe.yaml are read"):
            summary: Mapping[str, Any] = parse_json((folder / "summary.json").read_text(encoding="utf-8"))
            recipe: Mapping[str, Any] = YAML(typ="safe").load((folder / "recipe.yaml").read_text(encoding="utf-8"))
        stages = recipe.get("stages", {}).values()
        kinds = [stage["curriculum"] for stage in stages if isinstance(stage.get("curriculum"), Mapping)]
        shares = next((dict(own.get("shares") or {}) for own in kinds if own.get("kind") == "by_share"), {})
        scores = []
        for name in (self.measure, self.inside or self.measure):
            value = summary.get(name)
            if not isinstance(value, int | float):
                raise UserError(
                    f"{folder}/summary.json has no number '{name}'; give measure=NAME, a number that it has"
                )
            scores.append(float(value))
        return shares, scores[0], scores[1]


def _shown(row: Reals, domains: list[str]) -> str:
    return ", ".join(f"{name} {share:.2f}" for name, share in zip(domains, row.tolist(), strict=True))
