"""The squared surrogate of Kimi K2 with several tau against GRPO, and QK-clip at a high learning rate.

    python docs/experiments/muon_clip.py tau --seeds 5
    python docs/experiments/muon_clip.py clip --seeds 5

Sheet of row 149 (arXiv:2507.20534), experiments 1 and 3. `tau`: the bundled model, 20 steps of 8 sums with 8 rollouts,
four epochs over each batch, with Muon at five times the rate of the setting. The loss is that of the sheet divided by 2
tau, so that the rate of all arms is the same. Accuracy is on 100 held-out sums; drift is the sampled KL, in nats an
answer, of the updated policy from the one that drew the rollouts of the step: its mean over the steps and its largest.
`clip`: a new Llama-shaped model of two layers imitates 16 worked sums a step for 150 steps, with Muon at a high rate.
The largest attention logit of each batch is measured before the update; with the clip, the heads above 20 are scaled
after it.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from posttrain.component import frozen
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.hooks import Hook, RoleState
from posttrain.components.hooks.qk_clip import QKClip
from posttrain.components.objectives import Objective
from posttrain.components.objectives.mirror_descent import MirrorDescent
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.optimizers.muon import Muon
from posttrain.components.reducers.constant import Constant
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.policies import Packed, Policy
from posttrain.policies.attention_logits import largest_logits
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.sft import demonstration
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Trajectory

RATE = 1.5e-2
TAUS = (0.01, 0.1, 1.0)
TAU_QK = 20.0
CURVE: list[float] = []
"""The drift after each step of the run in progress."""


@frozen
class Drift(Hook):
    """Keeps the sampled KL of the updated policy from the one that drew the rollouts, in nats an answer."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy."""
        return frozenset({"policy"})

    @property
    def changed(self) -> frozenset[str]:
        """None."""
        return frozenset()

    @torch.no_grad()
    def __call__(self, step: int, states: Mapping[str, RoleState]) -> None:
        """Measure."""
        rollouts = [own for group in states["policy"].groups for own in group]
        after = [float(own.sum()) for own in logp(states["policy"].model, rollouts)]
        before = [float(own.behavior_logp.sum()) for own in rollouts]
        CURVE.append(float(np.mean(before) - np.mean(after)))


def swept(objective: Objective) -> Recipe:
    """GRPO, or the surrogate in its place."""
    recipe = grpo(arithmetic())
    stage, tasks = rl_of(recipe), recipe.tasks
    assert isinstance(tasks, Arithmetic)
    learner = replace(stage.learner, epochs=4, optimizer=Muon(lr=5e-4))
    if isinstance(objective, MirrorDescent):
        stage = replace(stage, filters={}, advantage=GroupMean(scale="none"), reducer=Constant(length=64.0))
    stage = replace(stage, steps=20, prompts=8, objective=objective, learner=learner, hooks={"drift": Drift()})
    return with_stage(replace(recipe, tasks=replace(tasks, size=200)), stage)


def imitated(seed: int, rate: float, *, clip: bool, steps: int = 150, batch: int = 16) -> tuple[list[float], float]:
    """Largest logit of each batch before its update, and the loss of 100 other solutions, in nats a token."""
    shape = Decoder(architecture="llama", layers=2, width=64, heads=4, kv_heads=4, mlp_width=192, seed=seed)
    with TemporaryDirectory() as folder:
        made = Model(source=str(shape.make(Path(folder) / "new")), trained=True)
        policy = load_policy("policy", made, {}, torch.device("cpu"))
    tasks = Arithmetic(size=steps * batch + 100, seed=seed).load()
    texts = [demonstration(policy, task, task.demonstrations[0]) for task in tasks]
    rule, curve = QKClip(tau=TAU_QK, most=batch), list[float]()
    optimizers = Muon(lr=rate).build(dict(policy.named_parameters()))
    for step in range(steps):
        taken = texts[100 + step * batch : 100 + (step + 1) * batch]
        curve.append(max(float(own.max()) for _, own in largest_logits(policy, [own.token_ids for own in taken])))
        loss(policy, taken).backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if clip:
            groups = [Group(key=own.task.key, trajectories=(own,)) for own in taken]
            rule(step + 1, {"policy": RoleState(role="policy", model=policy, groups=groups)})
    with torch.no_grad():
        return curve, float(loss(policy, texts[:100]))


def loss(policy: Policy, texts: Sequence[Trajectory]) -> torch.Tensor:
    """Mean negative log-likelihood of the tokens of solutions."""
    return -torch.cat(logp(policy, texts)).mean()


def logp(policy: Policy, texts: Sequence[Trajectory]) -> list[torch.Tensor]:
    """Log-probabilities of the tokens of the last segment of each text."""
    starts = np.cumsum([0, *(len(own.token_ids) for own in texts)])
    ids_L = torch.as_tensor(np.concatenate([own.token_ids for own in texts]), dtype=torch.int64)
    packed = Packed(token_ids_L=ids_L, starts=tuple(int(start) for start in starts))
    lengths = [len(own.segments[-1].token_ids) for own in texts]
    ends = [(int(end) - length, int(end)) for end, length in zip(starts[1:], lengths, strict=True)]
    positions_T = torch.cat([torch.arange(*own) for own in ends])
    hidden_TD = policy.body.hidden(packed).index_select(0, positions_T - 1)
    logp_TV = policy.body.logits(hidden_TD).log_softmax(-1)
    return list(logp_TV.gather(1, ids_L[positions_T, None])[:, 0].split(lengths))  # type: ignore[no-untyped-call]


def trained(recipe: Recipe, seed: int, out: Path) -> dict[str, Any]:
    """Summary of a run, and the numbers that its hooks kept."""
    CURVE.clear()
    changes = ["threads=1", "checkpoints.every_steps=0", "evaluation.every=0", "evaluation.holdout=100"]
    stage = rl_of(recipe)
    bare = with_stage(recipe, replace(stage, hooks={}))
    made = with_stage(override(bare, [*changes, f"seed={seed}"]), stage)
    _, summary = start(made, out, LiveView(json=True))
    return {**summary, "curve": list(CURVE)}


def cell(values: Sequence[float], digits: int = 3) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def sweep(seeds: range, out: Path) -> None:
    """Print the table of tau."""
    arms: dict[str, Objective] = {"GRPO": PPOClip(), **{f"tau {tau:g}": MirrorDescent(tau=tau) for tau in TAUS}}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in arms}
    for seed in seeds:
        for name, objective in arms.items():
            one = trained(swept(objective), seed, out)
            found[name].append((one["accuracy_after"], float(np.mean(one["curve"])), max(one["curve"])))
            print(seed, name, found[name][-1], file=sys.stderr, flush=True)
    table = [[name, *(cell(column) for column in zip(*rows, strict=True))] for name, rows in found.items()]
    print(json.dumps({"columns": ["arm", "accuracy", "drift", "largest drift"], "table": table}, indent=1))


def curves(seeds: range) -> None:
    """Print the table of the clip, and the mean curves."""
    table, shown = [], {}
    for name, clip in {"no clip": False, f"QK-clip at {TAU_QK:g}": True}.items():
        found = [imitated(seed, RATE, clip=clip) for seed in seeds]
        print(name, found, file=sys.stderr, flush=True)
        curve_SN = np.array([curve for curve, _ in found])
        shown[name] = [round(float(own), 1) for own in curve_SN.mean(0)[::10]]
        numbers = [curve_SN.max(1), curve_SN[:, -1], np.array([loss for _, loss in found])]
        table.append([name, *(cell(own, 2) for own in numbers)])
    columns = ["arm", "largest logit", "at the last step", "loss of other solutions"]
    print(json.dumps({"columns": columns, "table": table, "curves, every 10th step": shown}, indent=1))


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["tau", "clip"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    if given.what == "tau":
        sweep(seeds, given.out)
    else:
        curves(seeds)


if __name__ == "__main__":
    main()
