"""Do tasks with a smaller angle between hidden states have larger gradients? Sheet of row 45 (arXiv:2506.02281).

    python docs/experiments/angles.py --seeds 5

The premise of GAIN-RL, of the bundled model: each seed draws 60 sums of two to nine numbers, and 8 rollouts of each.
Rank correlations, over the tasks, of the score by which they are ordered (C_intra + C_inter, and with the released
weight of 8) with the norm of the gradient of the group-normalized policy gradient, with that of the likelihood of the
right answer, with the success rate, and with the number of numbers.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence

import numpy as np
import torch

from posttrain.components.curricula.angles import scores
from posttrain.components.rewards.match import Match
from posttrain.components.selections._sampling import sample_all
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies import Packed, Policy
from posttrain.policies.loading import load_policy
from posttrain.policies.mlp_inputs import last_mlp_inputs
from posttrain.statistics.intervals import mean
from posttrain.statistics.ranking import rank_correlation
from posttrain.types import Group, IntArray

TASKS, N = 60, 8


def main() -> None:
    """Print a line for each seed, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    policy = load_policy("policy", Model(source="pebble", trained=True), {}, torch.device("cpu"))
    policy.requires_grad_(True)
    found: dict[str, list[float]] = {}
    for seed in range(given.first, given.first + given.seeds):
        row = one_seed(policy, seed)
        print(json.dumps({"seed": seed, **row}), flush=True)
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    names = sorted({name.partition(", ")[2] for name in found})
    table = [[name, *(shown(found[f"{score}, {name}"]) for score in ("weight 1", "weight 8"))] for name in names]
    print(json.dumps({"columns": ["correlation with", "C_inter once", "C_inter 8 times"], "table": table}, indent=1))


def one_seed(policy: Policy, seed: int) -> dict[str, float]:
    """The rank correlations of one draw of tasks."""
    tasks = list(Arithmetic(size=TASKS, terms=(2, 9), seed=seed).load())
    reward = Match()
    server = Native().serve(policy, seed).bind("angles", seed)
    sampling = Sampling(temperature=1.0, max_tokens=64)
    groups = asyncio.run(sample_all(tasks, {"policy": server}, reward, role="policy", n=N, sampling=sampling, kind="-"))
    prompts = [np.asarray(policy.tokenizer.encode_prompt(task.prompt), np.int64) for task in tasks]
    states = last_mlp_inputs(policy, "policy", prompts)
    right = [np.asarray(policy.tokenizer.encode_completion(t.prompt, t.demonstrations[0]), np.int64) for t in tasks]
    others = {
        "gradient of rewards": [size(policy, p, *weighed(g)) for p, g in zip(prompts, groups, strict=True)],
        "gradient of the answer": [size(policy, p, [y], [1.0]) for p, y in zip(prompts, right, strict=True)],
        "success rate": [float(np.mean([t.solved for t in group])) for group in groups],
        "numbers in the sum": [float(str(t.prompt).count("+") + str(t.prompt).count("-")) for t in tasks],
    }
    return {
        f"weight {weight}, {name}": rank_correlation(scores(states, prompts, weight), values) or 0.0
        for weight in (1, 8)
        for name, values in others.items()
    }


def weighed(group: Group) -> tuple[list[IntArray], list[float]]:
    """The completions of a group, and their normalized rewards."""
    r_N = np.array([float(t.solved) for t in group])
    a_N = (r_N - r_N.mean()) / (r_N.std() + 1e-6)
    return [t.segments[1].token_ids for t in group], (a_N / len(r_N)).tolist()


def size(policy: Policy, prompt: IntArray, completions: Sequence[IntArray], weights: Sequence[float]) -> float:
    """The norm of the gradient of the weighed sum of log-probabilities."""
    if not any(weights):
        return 0.0
    sequences = [np.concatenate([prompt, y]) for y in completions]
    starts = np.cumsum([0, *map(len, sequences)])
    ids_L = torch.as_tensor(np.concatenate(sequences), dtype=torch.int64)
    packed = Packed(token_ids_L=ids_L, starts=tuple(int(s) for s in starts))
    logp_LV = policy.body.logits(policy.body.hidden(packed)).log_softmax(-1)
    total = torch.zeros(())
    for start, end, weight in zip(starts[:-1] + len(prompt), starts[1:], weights, strict=True):
        own = logp_LV[start - 1 : end - 1].gather(1, ids_L[start:end, None])
        total = total + weight * own.sum()
    gradients = torch.autograd.grad(total, list(policy.parameters()), allow_unused=True)
    return float(sum(float((g**2).sum()) for g in gradients if g is not None) ** 0.5)


def shown(values: list[float]) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


if __name__ == "__main__":
    main()
