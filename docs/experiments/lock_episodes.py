"""ArCHer against REINFORCE on a combination lock, with models: equal episodes, with and without its baseline of tokens.

    python docs/experiments/lock_episodes.py --seeds 5

Every arm has the same warm-up, and 60 steps of 32 episodes. ArCHer learns from its critic from step 15 on. REINFORCE is
RLOO without its KL: the reward of the episode less the mean of the other seven of its group. Episodes until at least
half of a step's are rewarded, `all` where that does not happen; and held-out episodes that are opened.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from posttrain import run
from posttrain.methods.credit.archer import archer
from posttrain.methods.policy_gradient.rloo import rloo
from posttrain.settings.lock import lock
from posttrain.statistics.intervals import mean

ALWAYS = ["threads=1", "checkpoints.every_steps=0", "alarms.reward_collapse.action=note"]
REINFORCE = ["penalties.kl.coefficient=0"]
ARMS = {
    "ArCHer": [],
    "ArCHer without the baseline": ["rl.baseline_role=null"],
    "REINFORCE, rate 6e-4": REINFORCE,
    "REINFORCE, rate 2e-3": [*REINFORCE, "rl.learner.optimizer.lr=2e-3"],
}
EPISODES = 32


def measured(folder: Path) -> tuple[float, float, float]:
    """Episodes until half of a step's are rewarded, the mean reward of the last five steps, and held-out success."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    reward = [row["reward"] for row in rows if "reward" in row]
    half = next((i + 1 for i, value in enumerate(reward) if value >= 0.5), len(reward))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return float(half * EPISODES), float(np.mean(reward[-5:])), summary["accuracy_after"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    table = []
    for name, changes in ARMS.items():
        rows = []
        for seed in range(given.seeds):
            recipe = archer() if name.startswith("ArCHer") else rloo(lock())
            done = run(recipe, changes=[*ALWAYS, f"seed={seed}", *changes], out=given.out, quiet=True)
            rows.append(measured(done.folder))
            print(name, seed, rows[-1], file=sys.stderr, flush=True)
        half, last = (mean([row[i] for row in rows]) for i in range(2))
        table.append(
            [
                name,
                f"{half.value:,.0f} [{half.interval.low:,.0f}, {half.interval.high:,.0f}]",
                f"{last.value:.2f} [{last.interval.low:.2f}, {last.interval.high:.2f}]",
                ", ".join(f"{100 * row[2]:.0f}" for row in rows),
            ]
        )
    columns = ["arm", "episodes until half are rewarded", "reward of the last 5 steps", "held-out, % by seed"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
