"""A quota of samples in progress: how old they get, and what losses bear. Sheet of row 266 (arXiv:2508.07976).

    python docs/experiments/asearcher.py --part stream [--seeds 5]
    python docs/experiments/asearcher.py --part bandit [--seeds 5]
    python docs/experiments/asearcher.py --part features [--seeds 5]

Stream: 64 rollouts a step with log-normal durations (sigma 1, mean 1 s), one in 64 of them ten times as long, on 128
places; learning takes 1 s. Steps a minute, and the ages of what is learned from, in steps: batch after batch, one step
ahead, and with quotas eta of 1, 4 and 16.

Bandit: eight contexts of ten arms, one arm of each right, 64 draws a step. Each step learns from draws of older
weights, whose ages are those of the stream with eta 4. PPO's clip about the sampler (coupled), about the weights before
the update (decoupled) with each draw's weight between both, dropped or truncated above 5, four updates a step, at
several rates. Mean expected reward of the last 20 of 120 steps.

Features: the same losses where a bandit is not a table and chance decides about rewards. 40 contexts are random vectors
of length 1 with 16 numbers, logits are their products with one matrix, so that an update about one context changes all.
Rewards are 0 or 1; the best arm of a context has 1 with probability 1, the others with .35 on average (0 to .7). A step
has 8 contexts, 8 draws each. Expected reward of the last 20 steps as a share of the best, and the deepest fall below
what was reached before.
"""

import argparse
import json
from collections.abc import Sequence

import numpy as np
import torch

from posttrain.cluster.planning.streams import Machines, lagged, streaming
from posttrain.components.corrections import Correction
from posttrain.components.corrections.dropped import Dropped
from posttrain.components.corrections.truncated import Truncated
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.statistics.intervals import mean
from posttrain.types import Tokens

BATCH, STEPS, PLACES = 64, 120, 128
CONTEXTS, ARMS, UPDATES = 8, 10, 4
RATES = (3.0, 12.0, 48.0)
LOSSES: dict[str, Correction | None] = {
    "coupled": None,
    "decoupled, dropped above 5": Dropped(cap=5.0),
    "decoupled, truncated at 5": Truncated(cap=5.0),
}


def durations(seed: int) -> list[float]:
    """Seconds of each rollout."""
    rng = np.random.default_rng(seed)
    seconds = rng.lognormal(-0.5, 1.0, BATCH * (STEPS + 40))
    seconds[::BATCH] *= 10.0
    return [float(s) for s in seconds]


def schedules(seed: int) -> dict[str, tuple[float, list[int]]]:
    """Steps a minute, and the age of each sample that was learned from."""
    seconds, machines = durations(seed), Machines(places=PLACES, train=1.0)
    work = [seconds[i * BATCH : (i + 1) * BATCH] for i in range(STEPS)]
    found = {}
    for name, lag in (("batch after batch", 0), ("one step ahead", 1)):
        found[name] = (
            60.0 * STEPS / lagged(work, machines, lag)[-1],
            [min(s, lag) for s in range(STEPS) for _ in work[0]],
        )
    for eta in (1, 4, 16):
        streamed = streaming(seconds, machines, batch=BATCH, steps=STEPS, eta=eta)
        found[f"quota {eta}"] = 60.0 * STEPS / streamed.trained[-1], streamed.staleness
    return found


def bandit(name: str, rate: float, ages: Sequence[int], seed: int) -> float:
    """Mean expected reward of the last 20 steps; step s has the draws from place 64 s on."""
    rng = np.random.default_rng(seed)
    right_C = torch.tensor(rng.integers(0, ARMS, CONTEXTS))
    logits_CA = torch.zeros(CONTEXTS, ARMS, dtype=torch.float64, requires_grad=True)
    kept, rewards = [logits_CA.detach().log_softmax(1)], []
    objective, correction = PPOClip(clip_low=0.4, clip_high=0.4), LOSSES[name]
    context_T = torch.arange(BATCH) % CONTEXTS
    for step in range(STEPS):
        born = [max(step - age, 0) for age in ages[step * BATCH : (step + 1) * BATCH]]
        logp_TA = torch.stack(
            [kept[version][context] for version, context in zip(born, context_T.tolist(), strict=True)]
        )
        arm_T = torch.tensor([int(rng.choice(ARMS, p=p / p.sum())) for p in logp_TA.exp().numpy()])
        behavior_T = logp_TA[torch.arange(BATCH), arm_T]
        reward_T = (arm_T == right_C[context_T]).double()
        sums_C = torch.zeros(CONTEXTS, dtype=torch.float64).index_add(0, context_T, reward_T)
        advantage_T = reward_T - (sums_C / (BATCH / CONTEXTS))[context_T]
        before_T = kept[-1][context_T, arm_T]
        for _ in range(UPDATES):
            logp_T = logits_CA.log_softmax(1)[context_T, arm_T]
            old_T = behavior_T if correction is None else before_T
            tokens = tokens_of(logp_T, behavior_T, old_T, advantage_T)
            loss_T = objective(tokens).loss_T
            if correction is not None:
                loss_T = loss_T * correction(tokens)
            (gradient,) = torch.autograd.grad(loss_T.mean(), logits_CA)
            with torch.no_grad():
                logits_CA -= rate * gradient
        kept.append(logits_CA.detach().log_softmax(1))
        rewards.append(float(kept[-1].exp().gather(1, right_C[:, None]).mean()))
    return float(np.mean(rewards[-20:]))


KINDS, FEATURES = 40, 16
HIGH = (12.0, 48.0, 192.0)


def shared(name: str, rate: float, ages: Sequence[int], seed: int) -> tuple[float, float]:
    """Share of the best expected reward in the last 20 steps, and the deepest fall below what was reached before."""
    rng = np.random.default_rng(seed)
    means_CA = torch.tensor(rng.uniform(0.0, 0.7, (KINDS, ARMS)))
    means_CA[torch.arange(KINDS), torch.tensor(rng.integers(0, ARMS, KINDS))] = 1.0
    inputs_CF = torch.tensor(rng.normal(size=(KINDS, FEATURES)))
    inputs_CF /= inputs_CF.norm(dim=1, keepdim=True)
    weights_FA = torch.zeros(FEATURES, ARMS, dtype=torch.float64, requires_grad=True)
    kept, rewards, draws = [(inputs_CF @ weights_FA).detach().log_softmax(1)], list[float](), BATCH // CONTEXTS
    objective, correction = PPOClip(clip_low=0.4, clip_high=0.4), LOSSES[name]
    for step in range(STEPS):
        context_T = torch.tensor(rng.permutation(KINDS)[:CONTEXTS]).repeat_interleave(draws)
        born = [max(step - age, 0) for age in ages[step * BATCH : (step + 1) * BATCH]]
        logp_TA = torch.stack([kept[version][c] for version, c in zip(born, context_T.tolist(), strict=True)])
        arm_T = torch.tensor([int(rng.choice(ARMS, p=p / p.sum())) for p in logp_TA.exp().numpy()])
        behavior_T = logp_TA[torch.arange(BATCH), arm_T]
        reward_T = torch.tensor((rng.random(BATCH) < means_CA[context_T, arm_T].numpy()).astype(float))
        reward_GN = reward_T.reshape(CONTEXTS, draws)
        advantage_T = (reward_GN - reward_GN.mean(1, keepdim=True)).reshape(-1)
        before_T = kept[-1][context_T, arm_T]
        for _ in range(UPDATES):
            logp_T = (inputs_CF @ weights_FA).log_softmax(1)[context_T, arm_T]
            tokens = tokens_of(logp_T, behavior_T, behavior_T if correction is None else before_T, advantage_T)
            loss_T = objective(tokens).loss_T
            if correction is not None:
                loss_T = loss_T * correction(tokens)
            (gradient,) = torch.autograd.grad(loss_T.mean(), weights_FA)
            with torch.no_grad():
                weights_FA -= rate * gradient
        kept.append((inputs_CF @ weights_FA).detach().log_softmax(1))
        expected = (kept[-1].exp() * means_CA).sum(1).mean() / means_CA.max(1).values.mean()
        rewards.append(float(expected))
    reached = np.maximum.accumulate(rewards)
    return float(np.mean(rewards[-20:])), float((reached - np.array(rewards)).max())


def tokens_of(logp_T: torch.Tensor, behavior_T: torch.Tensor, old_T: torch.Tensor, advantage_T: torch.Tensor) -> Tokens:
    """Draws as sequences of one token."""
    ones = torch.ones(len(logp_T))
    return Tokens(
        logp_T=logp_T,
        behavior_logp_T=behavior_T,
        old_logp_T=old_T,
        advantage_T=advantage_T,
        value_target_T=None,
        signals={},
        sequence_T=torch.arange(len(logp_T)),
        turn_T=torch.zeros(len(logp_T), dtype=torch.int64),
        group_N=torch.arange(len(logp_T)) % CONTEXTS,
        length_N=ones,
        reward_N=ones,
        solved_N=ones,
        group_solved_N=ones,
        progress=0.0,
    )


def main() -> None:
    """Print the table of a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["stream", "bandit", "features"], required=True)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = [schedules(seed) for seed in range(arguments.seeds)]
    if arguments.part == "stream":
        table = []
        for name in found[0]:
            beyond = [np.mean(np.array(own[name][1]) > eta_of(name)) for own in found]
            cells = [
                said([own[name][0] for own in found], 1),
                said([float(np.mean(own[name][1])) for own in found], 2),
                str(max(max(own[name][1]) for own in found)),
                said([100.0 * float(b) for b in beyond], 2),
            ]
            table.append([name, *cells])
        columns = ["schedule", "steps a minute", "mean age", "largest age", "% older than the bound of the start"]
    elif arguments.part == "features":
        table = []
        for name in LOSSES:
            pairs = [[shared(name, rate, own["quota 4"][1], s) for s, own in enumerate(found)] for rate in HIGH]
            table.append([name, *(said([pair[i] for pair in own], 3) for own in pairs for i in (0, 1))])
        columns = ["loss", *(f"rate {rate:g}, {what}" for rate in HIGH for what in ("reward", "deepest fall"))]
    else:
        table = [
            [
                name,
                *(said([bandit(name, rate, own["quota 4"][1], s) for s, own in enumerate(found)], 3) for rate in RATES),
            ]
            for name in LOSSES
        ]
        columns = ["loss", *(f"rate {rate:g}" for rate in RATES)]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


def eta_of(name: str) -> int:
    """The steps that a schedule may be ahead at the start of a sample."""
    return {"batch after batch": 0, "one step ahead": 1}.get(name) or int(name.split()[-1] if "quota" in name else 0)


def said(values: Sequence[float], digits: int) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


if __name__ == "__main__":
    main()
