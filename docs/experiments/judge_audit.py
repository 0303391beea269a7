"""Does the audit of judges name each planted fault, and nothing of a sound judge? And what do how many pairs show?

Planted judges (`posttrain.audit.judges.planted`) compare generated texts with countable traits, each in many draws of
texts and noise. The second table has judges with an effect of a quarter of the label's slope by standard deviation, and
the share of draws in which the audit shows it.

    python docs/experiments/judge_audit.py --draws 50 --sound 200
"""

import argparse
import json
import math
from collections import Counter

from posttrain.audit.judges import gold_pairs
from posttrain.audit.judges.auditing import audit_judge
from posttrain.audit.judges.planted import FAULTS, NAMED, SLOPE, Planted, gold, writer
from posttrain.statistics.intervals import wilson

PROMPTS = 67
MEAN_STRENGTH, LENGTH_STD, OWN_STD = 1.51, 0.53, 0.70
"""Of the pairs of `gold`: what the label's slope, the difference of lengths and that of writers are standardized by.
Half of the pairs have one answer alone by the judge's model, so that the last is the root of one half."""


def named(fault: str, draws: int, first: int = 0) -> Counter[tuple[str, ...]]:
    """How often an audit names which faults."""
    found: Counter[tuple[str, ...]] = Counter()
    for seed in range(first, first + draws):
        report = audit_judge(Planted(fault, seed), gold_pairs(gold(PROMPTS, seed, contrasted=60), "own"))
        found[tuple(sorted(one.fault for one in report.faults))] += 1
    return found


def power(effect: str, prompts: int, draws: int) -> int:
    """Draws in which an effect of a quarter of the slope is shown."""
    size = SLOPE * MEAN_STRENGTH / 4
    extra = {
        "order": lambda shown: size,
        "length": lambda shown: size * math.log((len(shown.first) + 1) / (len(shown.second) + 1)) / LENGTH_STD,
        "own style": lambda shown: size * ((writer(shown.first) == "own") - (writer(shown.second) == "own")) / OWN_STD,
    }[effect]
    shown = 0
    for seed in range(draws):
        judge = Planted("quarter", seed, lambda shown, gap: SLOPE * gap + extra(shown))
        report = audit_judge(judge, gold_pairs(gold(prompts, seed), "own"), attacked=0, repeated=0)
        rows = {name.removesuffix(" where close"): row for name, row in report.effects.items()}
        shown += rows[effect]["verdict"] == "shown"
    return shown


def share(count: int, draws: int) -> str:
    """A share with its interval."""
    low, high = wilson(count, draws)
    return f"{count / draws:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Print both tables as one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--sound", type=int, default=200)
    settings = parser.parse_args()
    table = []
    for fault in FAULTS:
        draws = settings.sound if fault == "sound" else settings.draws
        found = named(fault, draws)
        own = (NAMED[fault],) if fault in NAMED else ()
        with_own = sum(count for names, count in found.items() if set(own) <= set(names))
        table.append(
            [f"planted: {fault.replace('_', ' ')}", f"{draws}", share(found[own], draws), share(with_own, draws)]
        )
    for effect in ("order", "length", "own style"):
        for prompts in (17, PROMPTS, 134):
            found = share(power(effect, prompts, settings.draws), settings.draws)
            table.append([f"{effect} of a quarter of the slope, {3 * prompts} pairs", f"{settings.draws}", "", found])
    columns = ["judge", "draws", "named by its fault alone (a sound one: by none)", "its fault is named"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
