"""TRAAC: are thoughts shorter at equal accuracy where what attention passes over is cut out of correct rollouts?

    python docs/experiments/compressed_thoughts.py --seeds 5

Sheet of row 128 (arXiv:2510.01581), on the setting `padded_thoughts` with numbers of one digit: sums of two to four
numbers whose imitated solutions have trivial steps such as ``8+0=8``. Each seed imitates once; from there five kinds of
`STEPS` steps:

    grpo         a reward for the answer alone
    lengths      the reward of TRAAC, with lengths by class, without compressed rollouts
    traac        the method: attention of the model that the stage begins with
    oracle       attention by a rule: 1 for a token of a step that changes the number, .05 for one of a trivial step
    no classes   the oracle with the rate 0.6 and the scale 1 for all tasks

Reported are greedy accuracy and tokens on 200 held-out sums, accuracy on those of four numbers, and the mean share of
steps that was cut of compressed rollouts of easy tasks and of others.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from posttrain.components.rewards.class_length import ClassLength
from posttrain.components.rewards.sum import Sum
from posttrain.components.rollouts.compressed import Compressed, Eviction
from posttrain.components.rollouts.independent import Independent
from posttrain.engines import Attending, Sampler
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.rewards.traac import traac
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of, with_stage
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.store import RunStore
from posttrain.settings.padded_thoughts import padded_thoughts
from posttrain.statistics.intervals import mean
from posttrain.types import FloatArray, IntArray

STEPS = 30
COMMON = ["threads=1", "checkpoints.every_steps=0", "tasks.tasks.tasks.digits=[1, 1]"]
SHORTER = ["rl.prompts=6", f"rl.steps={STEPS}", "rl.rollout.sampling.max_tokens=96"]
ARMS = ("imitated", "grpo", "lengths", "traac", "oracle", "no classes")
NAMES = ("accuracy", "of four numbers", "tokens", "cut of easy", "cut of others")


@dataclass(frozen=True)
class Rule:
    """A sampler whose attention is by a rule."""

    of: Attending
    attends: bool = True

    @property
    def context(self) -> int:
        """That of the model."""
        return self.of.context

    def token_bytes(self, token_id: int) -> bytes:
        """Those of the model."""
        return self.of.token_bytes(token_id)

    async def attention(self, token_ids: IntArray, *, share: float, vectors: FloatArray | None) -> FloatArray:
        """.05 for tokens of steps that add nothing, 1 for others."""
        pieces = [self.of.token_bytes(int(i)) for i in token_ids]
        steps = b"".join(pieces).decode("utf-8", "replace").split(";")
        ends = np.cumsum([len(step.encode()) + 1 for step in steps])
        places = np.cumsum([0, *map(len, pieces)])[:-1]
        trivial = np.array(["+0=" in step or "-0=" in step for step in steps])
        number = np.minimum(np.searchsorted(ends, places, side="right"), len(steps) - 1)
        return np.where(trivial[number], 0.05, 1.0).astype(np.float32)


@contextmanager
def attention_by_rule() -> Iterator[None]:
    """Inside, all compressed rollouts read the rule."""
    before = Compressed._reader

    def reader(self: Compressed, samplers: Mapping[str, Sampler]) -> Rule:
        return Rule(before(self, samplers))

    Compressed._reader = reader  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Compressed._reader = before  # type: ignore[method-assign]


def arm(name: str, policy: str) -> Recipe:
    """The recipe of an arm, from an imitated model."""
    if name == "grpo":
        recipe = grpo(padded_thoughts())
        models = {**recipe.models, "policy": Model(source=policy, trained=True)}
        return replace(recipe, models=models, stages={"rl": rl_of(recipe)})
    recipe = traac()
    stage = rl_of(recipe)
    rollout, reward = stage.rollout, stage.reward
    assert isinstance(rollout, Compressed) and isinstance(reward, Sum)
    if name == "lengths":
        stage = replace(stage, rollout=Independent(n=rollout.n, sampling=rollout.sampling))
    elif name == "no classes":
        answer = reward.parts["answer"]
        assert isinstance(answer, ClassLength)
        parts = {**reward.parts, "answer": replace(answer, scales=(1.0, 1.0, 1.0))}
        rollout = replace(rollout, eviction=Eviction(rates=(0.6, 0.6, 0.6)))
        stage = replace(stage, rollout=rollout, reward=replace(reward, parts=parts))
    models = {**recipe.models, "policy": Model(source=policy, trained=True)}
    return with_stage(replace(recipe, models=models, stages={"rl": stage}), stage)


def run(recipe: Recipe, seed: int, folder: str) -> Path:
    """The folder of a run."""
    shorter = SHORTER if "rl" in recipe.stages else []
    made, _ = start(override(recipe, [f"seed={seed}", *COMMON, *shorter]), Path(folder), LiveView(json=True))
    return made


def measured(folder: Path, steps: int) -> list[float]:
    """Accuracy, that of four numbers, tokens, and shares of steps that were cut."""
    last = json.loads((folder / "evals.jsonl").read_text().splitlines()[-1])
    store = RunStore.open(folder, reading=True)
    rows = store.evaluation_rows(int(last["step"]), last["name"], ("prompt", "score_status"))
    four = [row["score_status"] == "ok" for row in rows if _terms(row["prompt"]) == 4]
    cuts: dict[bool, list[float]] = {True: [], False: []}
    for step in range(1, steps + 1):
        for row in store.rollouts(step):
            info = json.loads(row["info"] or "{}")
            if info.get("steps", 0) > 1:
                cuts[info["difficulty"] == "easy"].append(info["evicted"] / info["steps"])
    shares = [float(np.mean(cuts[easy])) if cuts[easy] else 0.0 for easy in (True, False)]
    return [last["accuracy"], float(np.mean(four)), last["mean_tokens"], *shares]


def _terms(prompt: str) -> int:
    return 1 + sum(prompt.count(sign) for sign in "+-*")


def said(values: list[float], percent: bool) -> str:
    """A mean with its 95 % interval."""
    own, scale = mean(values), 100.0 if percent else 1.0
    if len(set(values)) == 1:
        return f"{scale * values[0]:.1f}"
    return f"{scale * own.value:.1f} [{scale * own.interval.low:.1f}, {scale * own.interval.high:.1f}]"


def play(seed: int) -> dict[str, list[float]]:
    """The numbers of each kind."""
    found: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        base = traac()
        models = {"policy": base.models["policy"]}
        imitated = run(replace(base, stages={"sft": sft_of(base)}, models=models), seed, folder)
        found["imitated"] = measured(imitated, 0)
        print(json.dumps({"seed": seed, "imitated": found["imitated"]}), flush=True)
        for name in ARMS[1:]:
            recipe = arm(name, str(imitated / "model"))
            with attention_by_rule() if name in ("oracle", "no classes") else nullcontext():
                found[name] = measured(run(recipe, seed, folder), STEPS)
            print(json.dumps({"seed": seed, name: found[name]}), flush=True)
    return found


def main() -> None:
    """Print the numbers of each seed, then the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    seeds = [play(seed) for seed in range(given.first, given.first + given.seeds)]
    show(seeds)


def show(seeds: list[dict[str, list[float]]]) -> None:
    """Print the table, and the differences between kinds by seed."""
    table = []
    for name in ARMS:
        columns = zip(*(one[name] for one in seeds), strict=True)
        cells = [said(list(own), n != "tokens") for n, own in zip(NAMES, columns, strict=True)]
        table.append([name, *cells])
        print("  ".join(table[-1]))
    for name, other in (("traac", "grpo"), ("traac", "lengths"), ("oracle", "lengths"), ("no classes", "oracle")):
        for place in (0, 1, 2):
            gaps = [one[name][place] - one[other][place] for one in seeds]
            print(name, "less", other, NAMES[place], said(gaps, place < 2))
    print(json.dumps({"columns": ["", *NAMES], "table": table}))


if __name__ == "__main__":
    main()
