"""Soft actor-critic on small networks, whose state is JSON: two critics with slow targets, a learned temperature.

Haarnoja et al. 2018, arXiv:1812.05905, equations 5 to 18, with a squashed Gaussian policy.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

HIDDEN = 32
DISCOUNT, SLOW = 0.9, 0.05
Networks = Mapping[str, Any]


def new_networks(seen: int, actions: int, seed: int) -> Networks:
    """Random actor and critics; the actor's last layer is zero, so that it begins around the recipe's settings."""
    rng = np.random.Generator(np.random.Philox(key=[seed, 0x5AC]))

    def layers(inputs: int, outputs: int, last: float) -> list[list[Any]]:
        first = rng.normal(size=(HIDDEN, inputs)) / math.sqrt(inputs)
        second = last * rng.normal(size=(outputs, HIDDEN)) / math.sqrt(HIDDEN)
        return [first.tolist(), [0.0] * HIDDEN, second.tolist(), [0.0] * outputs]

    critics = {name: layers(seen + actions, 1, 1.0) for name in ("critic_0", "critic_1")}
    return {
        "actor": layers(seen, 2 * actions, 0.0),
        **critics,
        **{name.replace("critic", "target"): value for name, value in critics.items()},
        "temperature": [[math.log(0.05)]],
        "moments": {},
        "step": 0,
    }


def act(networks: Networks, seen: Sequence[float], key: Sequence[int]) -> list[float]:
    """An action in [-1, 1] by dimension."""
    actor = _tensors(networks["actor"])
    noise = _noise((1, len(networks["actor"][3]) // 2), (*key, 1))
    action, _ = _sampled(actor, torch.tensor([seen], dtype=torch.float64), noise)
    return [float(value) for value in action[0]]


def learn(networks: Networks, replay: Sequence[Sequence[Any]], batch: int, lr: float, key: Sequence[int]) -> Networks:
    """One update of critics, actor and temperature on a batch of (seen, action, reward, seen next)."""
    rng = np.random.Generator(np.random.Philox(key=[key[0], 2 * key[1] + 2]))
    rows = [replay[i] for i in rng.choice(len(replay), batch, replace=False)]
    seen, action, reward, following = (torch.tensor([row[i] for row in rows], dtype=torch.float64) for i in range(4))
    trained = {
        name: [t.requires_grad_() for t in _tensors(networks[name])]
        for name in ("actor", "critic_0", "critic_1", "temperature")
    }
    targets = {name: _tensors(networks[name]) for name in ("target_0", "target_1")}
    alpha = trained["temperature"][0].exp()
    with torch.no_grad():
        next_action, next_logp = _sampled(trained["actor"], following, _noise(action.shape, (*key, 2)))
        values = [_network(targets[name], torch.cat([following, next_action], 1))[:, 0] for name in targets]
        wanted = reward + DISCOUNT * (torch.minimum(*values) - alpha * next_logp)
    pairs = torch.cat([seen, action], 1)
    critic_loss = sum(
        ((_network(trained[name], pairs)[:, 0] - wanted) ** 2).mean() for name in ("critic_0", "critic_1")
    )
    own, logp = _sampled(trained["actor"], seen, _noise(action.shape, (*key, 3)))
    frozen = [[t.detach() for t in trained[name]] for name in ("critic_0", "critic_1")]
    valued = torch.minimum(*(_network(critic, torch.cat([seen, own], 1))[:, 0] for critic in frozen))
    actor_loss = (alpha.detach() * logp - valued).mean()
    temperature_loss = -(trained["temperature"][0] * (logp.detach() - action.shape[1])).mean()
    loss = critic_loss + actor_loss + temperature_loss
    names = list(trained)
    gradients = iter(torch.autograd.grad(loss, [t for name in names for t in trained[name]]))
    by_name = {name: [next(gradients) for _ in trained[name]] for name in names}
    return _stepped(networks, trained, by_name, targets, lr)


def _stepped(
    networks: Networks,
    trained: Mapping[str, Sequence[Tensor]],
    gradients: Mapping[str, Sequence[Tensor]],
    targets: Mapping[str, Sequence[Tensor]],
    lr: float,
) -> Networks:
    """The networks after a step of Adam, and the targets after a small step towards the critics."""
    step = networks["step"] + 1
    found: dict[str, Any] = {"step": step, "moments": {}}
    for name, own in trained.items():
        old = networks["moments"].get(name) or [[(0 * t).tolist() for t in own]] * 2
        first = [0.9 * m + 0.1 * g for m, g in zip(_tensors(old[0]), gradients[name], strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(_tensors(old[1]), gradients[name], strict=True)]
        found[name] = [
            (t.detach() - lr * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)).tolist()
            for t, m, v in zip(own, first, second, strict=True)
        ]
        found["moments"][name] = [[t.tolist() for t in moments] for moments in (first, second)]
    for name, slow in targets.items():
        fast = _tensors(found[name.replace("target", "critic")])
        found[name] = [((1 - SLOW) * s + SLOW * f).tolist() for s, f in zip(slow, fast, strict=True)]
    return found


def _sampled(actor: Sequence[Tensor], seen: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Squashed Gaussian actions and the log of their densities."""
    mean, log_std = _network(actor, seen).chunk(2, dim=1)
    log_std = log_std.clamp(-5.0, 1.0) - 1.0
    raw = mean + log_std.exp() * noise
    density = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    squash = 2.0 * (math.log(2.0) - raw - F.softplus(-2.0 * raw))
    return raw.tanh(), (density - squash).sum(1)


def _network(layers: Sequence[Tensor], inputs: Tensor) -> Tensor:
    first, first_bias, second, second_bias = layers
    return F.linear(torch.tanh(F.linear(inputs, first, first_bias)), second, second_bias)


def _noise(shape: Sequence[int], key: Sequence[int]) -> Tensor:
    rng = np.random.Generator(np.random.Philox(key=[key[0], (key[1] << 8) + key[2]]))
    return torch.as_tensor(rng.normal(size=tuple(shape)))


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    return [torch.tensor(value, dtype=torch.float64) for value in values]
