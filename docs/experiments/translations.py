"""Which measure of translations teaches what, and what is the -2 of a broken form for?

A tabular translator of a cipher of 8 words: for each word a softmax over 8 words, one choice between writing in order
and backwards, and one of a whole or a broken form; sentences have 6 words. GRPO has groups of 8 translations, 8
sentences a step and 300 steps. Rewards are those of `rewards/translated`: the form and BLEU (lex), words in common
whatever their order (sem), or both (mix); and lex with 0 in place of -2 where the form is broken. At the start a tenth
of the forms is whole, half of the translations are in order, and words are uniform. Reported are the steps until nine
forms in ten are whole, and BLEU and words in common of sampled translations in the last 20 steps.

    python docs/experiments/translations.py --seeds 5
    python docs/experiments/translations.py --seeds 5 --learned   # ten minutes

With `--learned` words are Spanish and English, the score of meaning is `rewards/semantic` beside the Spanish source,
and there are 150 steps.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence

import numpy as np

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.semantic import Semantic
from posttrain.components.rewards.translated import Translated
from posttrain.components.rewards.word_overlap import WordOverlap
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Segment, Task, Trajectory

WORDS, LENGTH, SENTENCES, GROUP, STEPS, RATE = 8, 6, 8, 8, 300, 1.0
LEARNED_STEPS = 150
NAMES = tuple("abcdefgh")
ENGLISH = ("dog", "house", "bread", "water", "red", "night", "friend", "sings")
SPANISH = ("perro", "casa", "pan", "agua", "rojo", "noche", "amigo", "canta")


def rollout(task: Task, words: np.ndarray, backwards: bool, whole: bool, names: Sequence[str] = NAMES) -> Trajectory:
    """A translation as text."""
    said = " ".join(names[i] for i in (words[::-1] if backwards else words))
    text = f"<think></think><translate>{said}</translate>" if whole else f"<think><translate>{said}</translate>"
    written = Segment(actor="policy", token_ids=np.zeros(1, np.int64), text=text, trained=True)
    return Trajectory(task=task, segments=(written,), stop_reason="stop")


def softmax(table: np.ndarray) -> np.ndarray:
    """[..., K] probabilities."""
    raised = np.exp(table - table.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def one(
    seed: int, reward: Translated, lost: float, steps: int = STEPS, learned: bool = False
) -> tuple[float, float, float]:
    """Steps to whole forms, BLEU and the score of meaning at the end."""
    names, foreign = (ENGLISH, SPANISH) if learned else (NAMES, NAMES)
    rng = np.random.default_rng(seed)
    right = rng.permutation(WORDS)
    table, order, form = np.zeros((WORDS, WORDS)), 0.0, float(np.log(0.1 / 0.9))
    formed, late = steps, []
    for step in range(steps):
        slopes = [np.zeros_like(table), 0.0, 0.0]
        wholes, measured = [], []
        for _ in range(SENTENCES):
            source = rng.integers(WORDS, size=LENGTH)
            meant = {"source": " ".join(foreign[right[i]] for i in source)}
            task = Task(key="task", prompt="p", answer=" ".join(names[right[i]] for i in source), fields=meant)
            chance = softmax(table[source])
            words = (chance.cumsum(-1)[None] <= rng.random((GROUP, LENGTH, 1))).sum(-1).clip(max=WORDS - 1)
            p_back, p_whole = 1 / (1 + np.exp(-order)), 1 / (1 + np.exp(-form))
            back, whole = rng.random(GROUP) < p_back, rng.random(GROUP) < p_whole
            group = Group(
                key="g", trajectories=tuple(rollout(task, *own, names) for own in zip(words, back, whole, strict=True))
            )
            scores = asyncio.run(reward.score(group, RewardContext()))
            values = np.array([score.value + (2.0 - lost) * (not ok) for score, ok in zip(scores, whole, strict=True)])
            own = (values - values.mean()) / (values.std(ddof=1) + 1e-6)
            for i in range(GROUP):
                np.add.at(slopes[0], (source, words[i]), own[i])
                np.subtract.at(slopes[0], source, own[i] * chance)
            slopes[1] += float((own * (back - p_back)).sum())
            slopes[2] += float((own * (whole - p_whole)).sum())
            wholes.append(whole.mean())
            measured += [[s.parts["bleu"].value, s.parts["meaning"].value] for s in scores if "bleu" in s.parts]
        count = SENTENCES * GROUP
        table += RATE * slopes[0] / count * WORDS
        order, form = order + RATE * slopes[1] / count, form + RATE * slopes[2] / count
        formed = step if formed == steps and np.mean(wholes) >= 0.9 else formed
        late += measured if step >= steps - 20 else []
    return (float(formed), *np.mean(late, 0).tolist())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learned", action="store_true", help="real words, and a learned score of meaning")
    given = parser.parse_args()
    seeds = range(given.seeds)
    arms = {
        "form and BLEU (lex)": ("lex", 2.0),
        "form and likeness in meaning (sem)" if given.learned else "form and words in common (sem)": ("sem", 2.0),
        "both (mix)": ("mix", 2.0),
        **({} if given.learned else {"lex, broken forms lose no 2": ("lex", 0.0)}),
    }
    semantic = Semantic(against="source") if given.learned else WordOverlap()
    steps = LEARNED_STEPS if given.learned else STEPS
    table = []
    for name, (measure, lost) in arms.items():
        reward = Translated(measure=measure, semantic=semantic, effective_order=False)  # type: ignore[arg-type]
        row = [name]
        for values in np.array([one(seed, reward, lost, steps, given.learned) for seed in seeds]).T:
            own = mean(values)
            row.append(f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]")
        table.append(row)
    columns = ["reward", "steps to whole forms", "BLEU", "likeness in meaning" if given.learned else "words in common"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
