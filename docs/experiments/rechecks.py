"""Does forced thinking help a judge that imitates rechecks, or only one that was rewarded for its verdicts?

A tabular judge sees one noisy look of the difference of two candidates, and then repeats what it noted, looks again, or
ends; its verdict is the sign of the mean of its looks. Probabilities depend on how clear that mean is (four bins) and
on whether it has rechecked. Imitation is of demonstrations that repeat once and end. REINFORCE++ rewards right verdicts
over batches of 512 items, with a KL of 0.01, and nothing is forced there. At evaluation an end is replaced 0, 1, 2 or 4
times, after which the judge has to repeat or look again; at most eight actions are the hard budget. A majority of three
has as many looks as two waits or more.

    python docs/experiments/rechecks.py --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.statistics.intervals import mean

BUDGET, BINS, ITEMS, STEPS, RATE, KL, NOISE = 8, np.array([0.5, 1.0, 2.0]), 512, 400, 3.0, 0.01, 1.5
REPEAT, LOOK, END = 0, 1, 2
WAITS = (0, 1, 2, 4)
IMITATED = np.log(np.stack([np.tile([0.85, 0.05, 0.10], (4, 1)), np.tile([0.08, 0.04, 0.88], (4, 1))]))
"""[rechecked, bin, action] logits after imitation."""


def softmax(logits: np.ndarray) -> np.ndarray:
    """[..., K] probabilities."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


def judged(logits: np.ndarray, rng: np.random.Generator, items: int, waits: int):
    """Right verdicts of some items, verdicts before the first wait, looks of each, and the actions that were chosen."""
    gap = rng.normal(size=items)
    total, looks = gap + NOISE * rng.normal(size=items), np.ones(items)
    rechecked, left, open_ = np.zeros(items, int), np.full(items, waits), np.ones(items, bool)
    before = np.full(items, np.nan)
    chosen = []
    for _ in range(BUDGET):
        bins = np.digitize(np.abs(total / looks), BINS)
        chance = softmax(logits[rechecked, bins])
        action = (rng.random(items)[:, None] > chance.cumsum(-1)).sum(-1).clip(0, 2)
        forced = open_ & (action == END) & (left > 0)
        before = np.where(forced & np.isnan(before), np.sign(total), before)
        other = chance[:, LOOK] / (chance[:, LOOK] + chance[:, REPEAT])
        chosen.append((open_ & ~forced, rechecked.copy(), bins, action.copy()))
        action = np.where(forced, (rng.random(items) < other).astype(int), action)
        left = left - forced
        open_ = open_ & (action != END)
        again = open_ & (action == LOOK)
        total = total + again * (gap + NOISE * rng.normal(size=items))
        looks = looks + again
        rechecked = np.where(open_, 1, rechecked)
    before = np.where(np.isnan(before), np.sign(total), before)
    return np.sign(total) == np.sign(gap), before == np.sign(gap), looks, chosen


def reinforced(seed: int) -> np.ndarray:
    """The logits after REINFORCE++."""
    rng, logits = np.random.default_rng(seed), IMITATED.copy()
    for _ in range(STEPS):
        right, _, _, chosen = judged(logits, rng, ITEMS, 0)
        reward = right.astype(float)
        slope, count = np.zeros_like(logits), sum(int(own.sum()) for own, *_ in chosen)
        tokens = np.concatenate([reward[own] for own, *_ in chosen])
        level, spread = tokens.mean(), np.sqrt(max(tokens.var(), 1e-8))
        for own, rechecked, bins, action in chosen:
            place = (rechecked[own], bins[own])
            chance = softmax(logits[place])
            score = np.eye(3)[action[own]] - chance
            np.add.at(slope, place, (reward[own] - level)[:, None] / spread * score / count)
        chance = softmax(logits)
        apart = np.log(chance) - np.log(softmax(IMITATED))
        slope -= KL * chance * (apart - (chance * apart).sum(-1, keepdims=True)) / 8
        logits = logits + RATE * slope
    return logits


def measured(logits: np.ndarray, seed: int) -> dict[str, tuple[float, ...]]:
    """By way of decoding: accuracy, turned right, turned wrong, looks."""
    found = {}
    for waits in WAITS:
        right, before, looks, _ = judged(logits, np.random.default_rng(seed + 1000), 20_000, waits)
        turned = (float((right & ~before).mean()), float((~right & before).mean()))
        found[f"{waits} waits"] = (float(right.mean()), *turned, float(looks.mean()))
    rng = np.random.default_rng(seed + 2000)
    gaps = rng.normal(size=20_000)
    votes, looks = np.zeros(20_000), np.zeros(20_000)
    for _ in range(3):
        # The same items: a look is drawn around the same gap.
        state = np.random.default_rng(rng.integers(2**31))
        own = gaps + NOISE * state.normal(size=20_000)
        count = np.ones(20_000)
        rechecked, open_ = np.zeros(20_000, int), np.ones(20_000, bool)
        for _ in range(BUDGET):
            chance = softmax(logits[rechecked, np.digitize(np.abs(own / count), BINS)])
            action = (state.random(20_000)[:, None] > chance.cumsum(-1)).sum(-1).clip(0, 2)
            open_ &= action != END
            again = open_ & (action == LOOK)
            own, count = own + again * (gaps + NOISE * state.normal(size=20_000)), count + again
            rechecked = np.where(open_, 1, rechecked)
        votes, looks = votes + np.sign(own), looks + count
    found["majority of 3"] = (float((np.sign(votes) == np.sign(gaps)).mean()), np.nan, np.nan, float(looks.mean()))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    for name, make in (("imitation", lambda seed: IMITATED), ("REINFORCE++", reinforced)):
        results = [measured(make(seed), seed) for seed in seeds]
        for way in results[0]:
            row = [f"{name}, {way}"]
            for column in np.array([result[way] for result in results]).T:
                found = None if np.isnan(column).any() else mean(column)
                row.append(f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]" if found else "-")
            table.append(row)
    columns = ["judge", "accuracy", "verdicts that turn right", "that turn wrong", "looks"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
