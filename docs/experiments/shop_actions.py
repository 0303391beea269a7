"""Which rewards keep a policy from ending every visit, and is a scale of 10 other than one of 1000?

A table: 12 situations of a shop, in which the recorded action is a click on one of 50 buttons (5), a search for one of
50 texts (4), or the end of the visit (3). The policy has a softmax over 50 names in each situation, and one over the
three types from logits of the situation plus some that all share, as all share a model's weights; nine visits in ten
are ended at the start. GRPO has groups of 8, every situation in each of 300 steps; rewards are those of
`rewards/next_action`. Reported are the share of sampled ends in the last 20 steps (a quarter are right), the macro F1
of types and the share of right actions by the most likely action, and, of groups with an exact click or search, the
share whose other rollouts have advantages that differ by more than 0.05.

    python docs/experiments/shop_actions.py --seeds 8
"""

import argparse
import asyncio
import json

import numpy as np

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.next_action import NextAction
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Segment, Task, Trajectory

TYPES = ("click", "type_and_submit", "terminate")
WANTED = np.array([0] * 5 + [1] * 4 + [2] * 3)
NAMES, GROUP, STEPS, LATE, RATE = 50, 8, 300, 20, 1.0
ENDED = 0.9


def action(kind: int, name: int) -> dict[str, str]:
    """An action as JSON has it."""
    said = f"name{name}"
    return [{"type": "click", "name": said}, {"type": TYPES[1], "name": "search", "text": said}, {"type": TYPES[2]}][
        kind
    ]


def table_of(reward: NextAction) -> np.ndarray:
    """[situations, types, names] rewards; situation i has the name i."""
    found = np.zeros((len(WANTED), len(TYPES), NAMES))
    for place, kind in enumerate(WANTED):
        task = Task(key="task", prompt="p", answer=json.dumps(action(int(kind), place)))
        texts = [json.dumps({"rationale": "", "action": action(k, n)}) for k in range(3) for n in range(NAMES)]
        rollouts = [
            Trajectory(
                task=task,
                segments=(Segment(actor="policy", token_ids=np.zeros(1, np.int64), text=text, trained=True),),
                stop_reason="stop",
            )
            for text in texts
        ]
        scores = asyncio.run(reward.score(Group(key="g", trajectories=tuple(rollouts)), RewardContext()))
        found[place] = np.array([score.value for score in scores]).reshape(len(TYPES), NAMES)
    return found


def softmax(table: np.ndarray) -> np.ndarray:
    """[..., K] probabilities."""
    raised = np.exp(table - table.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def drawn(rng: np.random.Generator, chance: np.ndarray) -> np.ndarray:
    """[situations, GROUP] places."""
    places = (chance.cumsum(-1)[:, None] <= rng.random((len(chance), GROUP, 1))).sum(-1)
    return np.asarray(places.clip(max=chance.shape[-1] - 1))


def macro_f1(kind: np.ndarray) -> float:
    """Mean over types of the F1 of the most likely types."""
    scores = []
    for own in range(len(TYPES)):
        both = ((kind == own) & (own == WANTED)).sum()
        scores.append(2 * both / max((kind == own).sum() + (own == WANTED).sum(), 1))
    return float(np.mean(scores))


def one(seed: int, values: np.ndarray) -> tuple[float, float, float, float]:
    """Share of ends, macro F1, right actions, and groups with a hit whose other rollouts differ."""
    rng, every = np.random.default_rng(seed), np.arange(len(WANTED))[:, None]
    shared, types = np.log([(1 - ENDED) / 2, (1 - ENDED) / 2, ENDED]), np.zeros((len(WANTED), len(TYPES)))
    names, late, spread = np.zeros((len(WANTED), NAMES)), [], []
    for step in range(STEPS):
        of_type, of_name = softmax(shared + types), softmax(names)
        kind, name = drawn(rng, of_type), drawn(rng, of_name)
        reward = values[every, kind, name]
        own = (reward - reward.mean(1, keepdims=True)) / (reward.std(1, ddof=1, keepdims=True) + 1e-6)
        change = RATE * ((np.eye(len(TYPES))[kind] - of_type[:, None]) * own[..., None]).mean(1)
        types, shared = types + change, shared + change.sum(0)
        # The end of a visit has no name, so that names do not matter.
        named = (kind < 2) * own
        names += RATE * ((np.eye(NAMES)[name] - of_name[:, None]) * named[..., None]).mean(1)
        late += [(kind == 2).mean()] if step >= STEPS - LATE else []
        hit = (kind == WANTED[:, None]) & (kind < 2) & (name == every)
        for place in np.flatnonzero(hit.any(1) & ~hit.all(1)):
            spread.append(float(np.ptp(own[place][~hit[place]]) > 0.05))
    kind, name = (shared + types).argmax(1), names.argmax(1)
    right = (kind == WANTED) & ((kind == 2) | (name == np.arange(len(WANTED))))
    return float(np.mean(late)), macro_f1(kind), float(right.mean()), float(np.mean(spread)) if spread else 0.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=8)
    seeds = range(parser.parse_args().seeds)
    arms = {
        "the whole action (binary)": NextAction(levels="binary"),
        "by level, scale 1": NextAction(scale=1.0),
        "by level, scale 10": NextAction(scale=10.0),
        "by level, scale 1000": NextAction(scale=1000.0),
    }
    table = []
    for label, reward in arms.items():
        values, row = table_of(reward), [label]
        for found in np.array([one(seed, values) for seed in seeds]).T:
            own = mean(found)
            row.append(f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]")
        table.append(row)
    columns = ["reward", "visits ended", "macro F1 of types", "right actions", "hits with others apart"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
