"""Update sparsity: does reinforcement change fewer weights than imitation, and does the subnetwork suffice?

    .venv/bin/python docs/experiments/update_sparsity.py --seeds 5 --steps 60

Sheet of row 5 (arXiv:2505.11711), experiments 1 and 2. For each seed, from the bundled model, with the same tasks,
steps and learning rate: GRPO on own samples, SFT on demonstrations, each with bfloat16 and with float32 weights; then
GRPO in bfloat16 again with the mask of the weights that the first run moved, and with a random mask of the same density
in every tensor. Prints the table of each seed as JSON, a line a seed, then means with 95 % intervals.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from posttrain.components.diagnostics import Finding, Subject
from posttrain.components.diagnostics.overlap import Overlap
from posttrain.components.diagnostics.sparsity import Sparsity
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.statistics.intervals import mean


def main() -> None:
    """Run every seed and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=3e-5)
    given = parser.parse_args()
    rows, last = [], None
    with TemporaryDirectory() as folder:
        for seed in range(given.seeds):
            row, after = one_seed(Path(folder) / str(seed), seed, given.steps, given.lr)
            if last is not None:
                found = Overlap().examine(subject("pebble"), subject(str(last)), subject(str(after)))
                row["overlap_times_chance"] = found.values["times_chance"]
            last = after
            rows.append(row)
            print(json.dumps({"seed": seed, **row}), flush=True)
    names = [name for name in rows[-1] if all(isinstance(row.get(name, 0.0), float) for row in rows)]
    for name in names:
        found = mean([row[name] for row in rows if name in row])
        low, high = (round(end, 4) if np.isfinite(end) else None for end in found.interval)
        print(json.dumps({"number": name, "mean": round(found.value, 4), "low": low, "high": high}))


def one_seed(folder: Path, seed: int, steps: int, lr: float) -> tuple[dict[str, Any], Path]:
    """All runs of one seed; the numbers, and the model of the GRPO run in bfloat16."""
    folder.mkdir()
    common = [f"seed={seed}", "threads=1", f"lr={lr}", "evaluation.holdout=200", "checkpoints.every_steps=0"]
    row: dict[str, Any] = {}
    for dtype in ("bfloat16", "float32"):
        for name, recipe, sizes in (
            ("grpo", grpo(), [f"steps={steps}", "prompts=8"]),
            ("sft", sft(), [f"max_steps={steps}", "batch=64", "epochs=10", "sft.learner.schedule=constant"]),
        ):
            changes = [*common, *sizes, f"models.policy.dtype={dtype}"]
            model, right = trained(override(recipe, changes), folder, f"{name}-{dtype}")
            mask = folder / f"{name}-{dtype}.safetensors"
            found = compared(model, mask, dtype).values
            row |= {
                f"{name}/{dtype}/accuracy": right,
                f"{name}/{dtype}/sparsity_bfloat16": found["dtypes"]["bfloat16"]["sparsity"],
                f"{name}/{dtype}/sparsity_float32": found["dtypes"]["float32"]["sparsity"],
                f"{name}/{dtype}/rank_ratio_float32": found["dtypes"]["float32"]["rank_ratio"],
                f"{name}/{dtype}/norm": found["dtypes"]["float32"]["norm"],
            }
    own = folder / "grpo-bfloat16.safetensors"
    random = folder / "random.safetensors"
    save_file({name: shuffled(tensor, seed) for name, tensor in load_file(own).items()}, random)
    changes = [*common, f"steps={steps}", "prompts=8", "models.policy.dtype=bfloat16"]
    for name, mask in (("own", own), ("random", random)):
        recipe = override(grpo(), [*changes, f"learner.mask={mask}"])
        model, row[f"masked/{name}/accuracy"] = trained(recipe, folder, f"masked-{name}")
        row[f"masked/{name}/untouched"] = untouched(model, mask)
    return row, folder / "grpo-bfloat16" / "model"


def trained(recipe: Recipe, folder: Path, name: str) -> tuple[Path, float]:
    """The model that a run leaves, and its accuracy on held-out tasks."""
    made, summary = start(replace(recipe, name=name), folder, LiveView(json=True))
    made.rename(folder / name)
    return folder / name / "model", float(summary["accuracy_after"])


def compared(model: Path, mask: Path, dtype: str) -> Finding:
    """The bundled model, as it is in the type that was trained in, beside a trained one."""
    return Sparsity(mask=str(mask)).examine(subject("pebble", dtype), subject(str(model)))


def untouched(model: Path, mask: Path) -> bool:
    """Whether every masked-out weight is the bundled one, as it is in bfloat16."""
    old, new = (subject(name).load().body for name in ("pebble", str(model)))
    after, kept = dict(new.named_parameters()), load_file(mask)
    return all(torch.equal(p.bfloat16()[kept[n] == 0], after[n].bfloat16()[kept[n] == 0]) for n, p in
               old.named_parameters())  # fmt: skip


def shuffled(mask: torch.Tensor, seed: int) -> torch.Tensor:
    """The entries of a mask in random places."""
    order = np.random.Generator(np.random.Philox(seed)).permutation(mask.numel())
    return mask.flatten()[torch.as_tensor(order)].reshape(mask.shape).contiguous()


def subject(name: str, dtype: Any = "float32") -> Subject:
    """A model to inspect; nothing is sampled from it."""
    model, unused = Model(source=name, dtype=dtype), cast(Any, None)
    return Subject(name=name, load=lambda: load_policy("policy", model, {}, torch.device("cpu")), serve=unused)


if __name__ == "__main__":
    sys.exit(main())
