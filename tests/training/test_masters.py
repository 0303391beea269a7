"""Float32 masters of bfloat16 weights: small updates add up, gradients do, and all of it is saved."""

from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.tokens import Tokens as TokenMean
from posttrain.kernels import layers, products
from posttrain.kernels.memory import shared_block
from posttrain.models import Model
from posttrain.policies._decoding import Decoding
from posttrain.policies.decoder import Decoder
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_policy
from posttrain.signals import ADVANTAGE, BEHAVIOR_LOGP, LOGP, OLD_LOGP
from posttrain.training import masters
from posttrain.training.learner import Learner, Loss
from posttrain.training.packing import Example
from posttrain.training.settings import Learning

LOSS = Loss(per_token=PPOClip(), reducer=TokenMean(), needs=frozenset({LOGP}))


def policy_in(folder: Path, dtype: str = "bfloat16") -> LanguageModelPolicy:
    if not folder.exists():
        new_folder(folder, layers=1, width=32, heads=2)
    policy = load_policy("policy", Model(source=str(folder), dtype=dtype, trained=True), {}, torch.device("cpu"))
    assert isinstance(policy, LanguageModelPolicy)
    return policy


def examples(count: int = 6) -> list[Example]:
    rng = np.random.default_rng(0)
    found = []
    for i in range(count):
        columns = {BEHAVIOR_LOGP: -5.0, OLD_LOGP: -5.0, ADVANTAGE: 1.0 - 2.0 * (i % 2)}
        found.append(
            Example(
                token_ids=rng.integers(0, 250, 12),
                positions=np.arange(4, 12),
                turn_T=np.zeros(8, np.int64),
                columns={name: np.full(8, value, np.float32) for name, value in columns.items()},
            )
        )
    return found


def learner_of(policy: LanguageModelPolicy, *, lr: float = 1e-6, **settings: object) -> Learner:
    learning = Learning(optimizer=AdamW(lr=lr), **settings)  # type: ignore[arg-type]
    return Learner(policy, learning, seed=0, num_steps=1000)


def weights_of(policy: LanguageModelPolicy) -> torch.Tensor:
    return torch.cat([p.detach().float().flatten() for p in policy.parameters()])


@pytest.mark.slow
def test_updates_smaller_than_a_digit_add_up_only_with_masters(tmp_path: Path) -> None:
    """At 1, the next bfloat16 number is 2^-7 away: a step of 1e-3 of a norm's weight is always rounded off."""
    moved = {}
    for kept in (True, False):
        policy = policy_in(tmp_path / "model")
        learner = learner_of(policy, lr=1e-3, master_weights=kept, clip_norm=None)
        for _ in range(20):
            learner.step(examples(), LOSS, progress=0.0)
        norms = [p for name, p in policy.named_parameters() if "layernorm" in name]
        moved[kept] = sum(int((p != 1).sum()) for p in norms)
        assert all(p.dtype == torch.bfloat16 for p in policy.parameters())
    assert moved[True] > 10 and moved[False] == 0


def test_gradients_of_micro_batches_are_added_up_in_float32(tmp_path: Path) -> None:
    policy = policy_in(tmp_path / "model")
    sums = []
    for size in (1, 10_000):
        learner = learner_of(policy, micro_batch_tokens=size)
        learner.accumulate(examples(), LOSS, 0.0)
        assert all(p.grad is None for p in policy.parameters())
        assert all(m.grad is not None and m.grad.dtype == torch.float32 for m in learner.parameters.values())
        sums.append(torch.cat([m.grad.flatten() for m in learner.parameters.values() if m.grad is not None]))
    assert (sums[0] - sums[1]).norm() < 0.02 * sums[1].norm()


def test_gradients_that_kernels_add_to_masters_are_those_of_torch_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learners in processes of their own send them, rounded to the type of the weights."""
    policy = policy_in(tmp_path / "model")

    def gradient() -> torch.Tensor:
        learner = learner_of(policy, micro_batch_tokens=24)
        learner.accumulate(examples(), LOSS, 0.0)
        assert not any(hasattr(p, "master") or p.grad is not None for p in policy.parameters())
        return torch.cat([m.grad.flatten() for m in learner.parameters.values() if m.grad is not None])

    by_kernel = gradient()
    monkeypatch.setattr(layers, "master_of", lambda weight: None)
    assert torch.equal(gradient(), by_kernel)


def test_weights_of_float32_are_their_own_masters(tmp_path: Path) -> None:
    policy = policy_in(tmp_path / "model", "float32")
    learner = learner_of(policy)
    assert not learner.masters.own
    assert {id(p) for p in learner.parameters.values()} == {id(p) for p in policy.parameters()}


@pytest.mark.parametrize("steps", [3])
def test_masters_are_saved_and_restored_exactly(tmp_path: Path, steps: int) -> None:
    whole, cut = policy_in(tmp_path / "model"), policy_in(tmp_path / "model")
    undisturbed, first = learner_of(whole), learner_of(cut)
    for _ in range(2 * steps):
        undisturbed.step(examples(), LOSS, progress=0.0)
    for _ in range(steps):
        first.step(examples(), LOSS, progress=0.0)
    resumed = policy_in(tmp_path / "model")
    resumed.load_state_dict(cut.state_dict())
    second = learner_of(resumed)
    second.load_state(*first.state())
    for _ in range(steps):
        second.step(examples(), LOSS, progress=0.0)
    for (name, one), other in zip(undisturbed.parameters.items(), second.parameters.values(), strict=True):
        assert torch.equal(one, other), name
    assert torch.equal(weights_of(whole), weights_of(resumed))


def test_weights_that_something_else_changed_are_taken_over(tmp_path: Path) -> None:
    policy = policy_in(tmp_path / "model")
    learner = learner_of(policy)
    learner.step(examples(), LOSS, progress=0.0)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(0.5)
    halved = weights_of(policy)
    learner.step(examples(), LOSS, progress=0.0)
    assert (weights_of(policy) - halved).abs().max() < 1e-2 * halved.abs().max()


@pytest.mark.skipif(not layers.has_wide_vectors(), reason="there are no own products")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_and_prepared_weights_take_turns_in_one_block(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bits of gradients in memory of their own; a gradient that is kept is not written over."""

    def gradients_of(learner: Learner) -> list[torch.Tensor]:
        learner.accumulate(examples(), LOSS, 0.0)
        return [p.grad for p in learner.parameters.values() if p.grad is not None]

    alone = [gradient.clone() for gradient in gradients_of(learner_of(policy_in(tmp_path / "model", dtype)))]
    assert shared_block() is None
    monkeypatch.setattr(masters, "LARGE", 1)
    monkeypatch.setattr(products, "LARGE_MATRIX", 1)
    policy = policy_in(tmp_path / "model", dtype)
    learner = learner_of(policy)
    first = gradients_of(learner)
    assert all(map(torch.equal, first, alone)) and first[1].dim() == 2
    block = shared_block()
    assert block is not None and block.lend() is None
    places, kept = [gradient.data_ptr() for gradient in first], first[1]  # of a layer: that of few words is torch's
    copy = kept.clone()
    del first
    learner.own.drop()
    assert isinstance(policy.body, Decoder)
    assert Decoding(policy.body)._room is None  # the block is lent
    second = gradients_of(learner)
    assert all(map(torch.equal, second, alone)) and torch.equal(kept, copy)
    del second, kept
    learner.own.drop()
    decoding = Decoding(policy.body)
    assert decoding._room is not None and block.lend() is None
    del decoding
    assert len(set(places) & {gradient.data_ptr() for gradient in gradients_of(learner)}) > 3
    del learner, block
    assert shared_block() is None


def test_only_weights_that_were_touched_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_in(tmp_path / "model")
    learner = learner_of(policy)
    compared: list[torch.Size] = []

    def counted(one: torch.Tensor, other: torch.Tensor) -> bool:
        compared.append(one.shape)
        return not torch.equal(one, other)

    monkeypatch.setattr(masters, "_is_other", counted)
    learner.step(examples(), LOSS, progress=0.0)
    learner.step(examples(), LOSS, progress=0.0)
    assert not compared
    name, weight = next(iter(policy.named_parameters()))
    with torch.no_grad():
        weight.mul_(2)
    learner.masters.follow()
    assert compared == [weight.shape] and torch.equal(learner.parameters[name], weight.float())
    learner.masters.follow()
    assert len(compared) == 1
    numbers, tensors = learner.state()
    learner.load_state(
        numbers, {key: tensor + 1 if key.endswith("|master") else tensor for key, tensor in tensors.items()}
    )
    learner.masters.follow()
    assert len(compared) == 1 + len(learner.masters.own)
    assert torch.equal(learner.parameters[name], weight.float())
