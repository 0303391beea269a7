"""Does a reward that infers each user from a few pairs serve users who disagree?

First, items are points in two dimensions, and users of two types like them by +u or by -u. A reward of Bradley and
Terry and one with a latent (4 numbers, 8 pairs of each user; `posttrain.policies.latent`) learn for 2,000 steps of 32
new users; both put new pairs of new users in order, the latent one after 0 to 8 pairs. Then 4 queries are chosen, of
100 sets that are drawn, by `query_value`, or are the first set.

Second, items are 11 places on a line. One user likes those near .8, the other those near .2 with margins a tenth as
large. One policy for both follows the exact gradient of the mean score, raw or bounded (the mean probability to be
preferred to all places). Reported is the share of the places that a user likes less than the policy's, .5 by chance.

    python docs/experiments/latent_users.py --seeds 5
"""

import argparse
import json
from itertools import product

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from posttrain.policies.latent import Latent, divergence, drawn, query_value
from posttrain.statistics.intervals import mean

STEPS, BATCH, PAIRS, SIZE, RATE, WEIGHT = 2000, 32, 8, 4, 1e-3, 1e-3
SHOWN = (0, 1, 2, 4, 8)


def ordered(item_U2KD: Tensor, utility_U2K: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """[U, K, D] chosen and rejected items by the model of Bradley and Terry."""
    better = torch.rand(utility_U2K[:, 0].shape, generator=draw) < (utility_U2K[:, 0] - utility_U2K[:, 1]).sigmoid()
    first, second = item_U2KD[:, 0], item_U2KD[:, 1]
    return torch.where(better[..., None], first, second), torch.where(better[..., None], second, first)


def users(count: int, pairs: int, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Types, and chosen and rejected items, of users who like items by +u or by -u."""
    kind_U = torch.randint(0, 2, (count,), generator=draw) * 2.0 - 1.0
    item = torch.randn(count, 2, pairs, 2, generator=draw)
    utility = 10.0 * kind_U[:, None, None] * (item @ torch.tensor([0.6, 0.8]))
    return kind_U, *ordered(item, utility, draw)


def learn(make: "Latent", sample: object, steps: int, draw: torch.Generator, plain: bool = False) -> Latent:
    """A reward that learned from the last pair of each user, given the others (none where it is plain)."""
    optimizer = torch.optim.Adam(make.parameters(), RATE)
    for _ in range(steps):
        _, chosen, rejected = sample(BATCH)  # type: ignore[operator]
        used = slice(0, 0) if plain else slice(0, chosen.shape[1] - 1)
        m, l = make.encode(chosen[:, used], rejected[:, used])  # noqa: E741
        z = torch.zeros_like(m) if plain else drawn(m, l, torch.randn(m.shape, generator=draw))
        margin = make.decode(chosen[:, -1], z) - make.decode(rejected[:, -1], z)
        loss = (WEIGHT * divergence(m, l) - logsigmoid(margin)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return make


@torch.no_grad()
def accuracy(model: Latent, chosen: Tensor, rejected: Tensor, m: Tensor) -> float:
    """Share of the last pairs that are in order."""
    return float((model.decode(chosen[:, -1], m) > model.decode(rejected[:, -1], m)).float().mean())


@torch.no_grad()
def after_queries(model: Latent, draw: torch.Generator, chosen_by_value: bool, count: int = 4) -> float:
    """Accuracy for 200 users after `count` queries."""
    right = []
    for _ in range(200):
        kind, chosen, rejected = users(1, 1, draw)
        sets = torch.randn(100, count, 2, 2, generator=draw)
        sign = torch.tensor(list(product([False, True], repeat=count)))
        values = []
        for one in sets if chosen_by_value else sets[:1]:
            a = torch.where(sign[..., None], one[:, 0], one[:, 1])
            b = torch.where(sign[..., None], one[:, 1], one[:, 0])
            values.append(float(query_value(model.encode(a, b)[1].exp())))
        best = sets[int(np.argmax(values))]
        utility = 10.0 * kind[:, None, None] * (best.transpose(0, 1)[None] @ torch.tensor([0.6, 0.8]))
        m, _ = model.encode(*ordered(best.transpose(0, 1)[None], utility, draw))
        right.append(accuracy(model, chosen, rejected, m))
    return float(np.mean(right))


def first(seed: int) -> dict[str, float]:
    """Accuracies of both rewards."""
    draw = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    plain = learn(Latent(2, SIZE), lambda n: users(n, PAIRS + 1, draw), STEPS, draw, plain=True)
    model = learn(Latent(2, SIZE), lambda n: users(n, PAIRS + 1, draw), STEPS, draw)
    kind, chosen, rejected = users(2000, PAIRS + 1, draw)
    found = {"Bradley-Terry": accuracy(plain, chosen, rejected, torch.zeros(2000, SIZE))}
    for shown in SHOWN:
        with torch.no_grad():
            m, _ = model.encode(chosen[:, :shown], rejected[:, :shown])
        found[f"latent, {shown} pairs"] = accuracy(model, chosen, rejected, m)
    # The means of the two types differ: the share of users nearer to the mean of their own type.
    own, other = (torch.stack([m[kind == s].mean(0) for s in order])[(kind > 0).long()] for order in ((-1, 1), (1, -1)))
    found["types that the mean of z separates"] = float(
        ((m - own).norm(dim=1) < (m - other).norm(dim=1)).float().mean()
    )
    found["4 queries, drawn"] = after_queries(model, draw, False)
    found["4 queries, by value"] = after_queries(model, draw, True)
    return found


def second(seed: int) -> dict[str, float]:
    """What a policy for two users with different margins serves each of them."""
    draw = torch.Generator().manual_seed(1000 + seed)
    place_A = torch.linspace(0.0, 1.0, 11)
    true = [-40.0 * (place_A - 0.8).abs(), -4.0 * (place_A - 0.2).abs()]

    def sample(count: int) -> tuple[Tensor, Tensor, Tensor]:
        kind = torch.randint(0, 2, (count,), generator=draw)
        arm = torch.randint(0, 11, (count, 2, PAIRS + 1), generator=draw)
        utility = torch.stack([true[int(k)][a] for k, a in zip(kind, arm, strict=True)])
        return kind, *ordered(place_A[arm][..., None], utility, draw)

    model = learn(Latent(1, SIZE), sample, STEPS, draw)
    with torch.no_grad():
        kind, chosen, rejected = sample(400)
        m, _ = model.encode(chosen[:, :-1], rejected[:, :-1])
        score = torch.stack(
            [
                torch.stack([model.decode(place_A[:, None], z.expand(11, -1)) for z in m[kind == k]]).mean(0)
                for k in (0, 1)
            ]
        )
    bounded = (score[:, :, None] - score[:, None, :]).sigmoid().mean(-1)
    found = {}
    for name, reward in (("raw", score.mean(0)), ("bounded", bounded.mean(0))):
        logit = torch.zeros(11)
        for _ in range(20_000):
            policy = logit.softmax(0)
            logit += 0.5 * policy * (reward - (policy * reward).sum())
        policy = logit.softmax(0)
        for user, utility in zip(("large", "small"), true, strict=True):
            less = (utility[:, None] > utility[None]).float() + 0.5 * (utility[:, None] == utility[None]).float()
            found[f"{name}, user of {user} margins"] = float(policy @ less.mean(1))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    rows = [first(seed) | second(seed) for seed in range(seeds)]
    found = {name: mean(np.array([row[name] for row in rows])) for name in rows[0]}
    table = [[name, f"{m.value:.3f} [{m.interval.low:.3f}, {m.interval.high:.3f}]"] for name, m in found.items()]
    print(json.dumps({"columns": ["reward", "share"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
