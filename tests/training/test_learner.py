"""The learner: cutting a step into micro-batches, the order of a batch and a restart change nothing."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.optimizers import Optimizer
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.optimizers.muon import Muon
from posttrain.components.reducers import Reducer
from posttrain.components.reducers.constant import Constant
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.schedules.linear import Linear
from posttrain.errors import AlarmStop
from posttrain.policies import Packed, Policy, decoder, vocabulary
from posttrain.policies._memory import room_beside
from posttrain.signals import ADVANTAGE, BEHAVIOR_LOGP, LOGP, OLD_LOGP
from posttrain.training.averages import moved_by
from posttrain.training.learner import Learner, Loss, evaluate_examples
from posttrain.training.packing import Example
from posttrain.training.settings import Learning
from posttrain.training.updates import Weights
from posttrain.types import PerToken
from posttrain.types import Tokens as TokenArrays

Examples = Callable[..., list[Example]]


def loss_with(reducer: Reducer | None = None) -> Loss:
    return Loss(per_token=PPOClip(), reducer=reducer or Tokens())


def gradient(policy: Policy, examples: list[Example], reducer: Reducer, micro_batch_tokens: int) -> torch.Tensor:
    policy.zero_grad()
    settings = Learning(micro_batch_tokens=micro_batch_tokens)
    Learner(policy, settings, seed=0, num_steps=1).accumulate(examples, loss_with(reducer), 0.0)
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]).double()


@pytest.mark.parametrize(
    ("kept_bytes", "tokens"),
    [(None, 4608), (1 << 10, 9216), (116_509, 9215), (1 << 18, 4096), (1 << 19, 2048), (1 << 30, 256)],
)
def test_a_micro_batch_on_a_cpu_is_as_large_as_a_gigabyte_lets_it_be(kept_bytes: int | None, tokens: int) -> None:
    assert Learning().tokens_at_a_time("cpu", kept_bytes) == tokens
    assert Learning().tokens_at_a_time("cuda", kept_bytes) == 16384
    assert Learning(micro_batch_tokens=77).tokens_at_a_time("cpu", kept_bytes) == 77


def test_a_large_model_leaves_less_room_for_activations() -> None:
    gigabyte = 1 << 30
    assert [room_beside(state) for state in (0, 31 << 25, 9 * gigabyte)] == [gigabyte, 22 << 25, 5 << 25]
    assert Learning().tokens_at_a_time("cpu", 1 << 19, room_beside(9 * gigabyte)) == 320


def test_a_model_keeps_about_as_much_for_the_backward_pass_as_estimated(policy: Policy) -> None:
    weights = {p.data_ptr() for p in policy.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    tokens = 96  # up to the longest context; a multiple of what rows are padded to
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        hidden = policy.body.hidden(Packed(token_ids_L=torch.zeros(tokens, dtype=torch.int64), starts=(0, tokens)))
    assert hidden.requires_grad and policy.kept_bytes is not None
    assert 0.9 < sum(kept.values()) / (tokens * policy.kept_bytes) < 2.5


def test_layers_that_are_computed_twice_give_the_same_gradient_to_the_bit(
    policy: Policy, examples_of: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = gradient(policy, examples_of(8), Tokens(), 10**6)
    monkeypatch.setattr(decoder, "MUCH", 0.0)
    assert torch.equal(gradient(policy, examples_of(8), Tokens(), 10**6), kept)


def test_gradients_of_the_vocabulary_are_the_same_where_they_go_straight_to_their_sum(
    policy: Policy, examples_of: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_torch = gradient(policy, examples_of(8), Tokens(), 60)
    monkeypatch.setattr(vocabulary, "LARGE", 0)
    straight = gradient(policy, examples_of(8), Tokens(), 60)
    assert (straight - by_torch).norm() / by_torch.norm() < 1e-5


@pytest.mark.parametrize("reducer", [Tokens(), Sequences(), Constant(length=40.0)], ids=lambda r: r.kind)
def test_accumulation_does_not_change_the_gradient(policy: Policy, examples_of: Examples, reducer: Reducer) -> None:
    examples = examples_of(32)
    total = sum(len(e.token_ids) for e in examples)
    whole = gradient(policy, examples, reducer, total)
    assert whole.norm() > 1e-3
    for parts in (2, 8):
        cut = gradient(policy, examples, reducer, math.ceil(total / parts))
        assert (cut - whole).abs().max() < 1e-6
        assert (cut - whole).norm() / whole.norm() < 1e-5


def test_the_order_of_a_batch_does_not_matter(policy: Policy, examples_of: Examples) -> None:
    examples = examples_of(16)
    whole = gradient(policy, examples, Sequences(), 10**6)
    shuffled = [examples[i] for i in np.random.default_rng(1).permutation(16)]
    assert (gradient(policy, shuffled, Sequences(), 10**6) - whole).abs().max() < 1e-6


def test_a_neighbour_does_not_change_what_a_sequence_contributes(policy: Policy, examples_of: Examples) -> None:
    examples = examples_of(6)
    alone = [gradient(policy, [e], Constant(length=1.0), 10**6) for e in examples]
    together = gradient(policy, examples, Constant(length=1.0), 10**6)
    assert (together - torch.stack(alone).mean(0)).abs().max() < 1e-6 * together.abs().max()


def test_the_loss_is_the_reducers_weighted_sum(policy: Policy, examples_of: Examples) -> None:
    examples = examples_of(5)
    logps = [r[LOGP] for r in evaluate_examples(policy, examples, frozenset({LOGP}), max_tokens=64)]
    by_hand = np.mean([np.mean(-logp * e.columns[ADVANTAGE]) for logp, e in zip(logps, examples, strict=True)])
    loss = Loss(per_token=PolicyGradient(), reducer=Sequences())
    total, signals = Learner(policy, Learning(), seed=0, num_steps=1).accumulate(examples, loss, 0.0)
    assert total == pytest.approx(by_hand, abs=1e-5)
    for seen, logp in zip(signals, logps, strict=True):
        np.testing.assert_allclose(seen[LOGP], logp, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [AdamW(lr=1e-3), Muon(lr=1e-3)], ids=lambda o: o.kind)
def test_a_restored_learner_continues_bit_for_bit(
    tiny_policy: Callable[[], Policy], examples_of: Examples, optimizer: Optimizer
) -> None:
    settings = Learning(optimizer=optimizer, schedule=Linear(warmup=0.2), epochs=2, minibatches=2)

    def steps(learner: Learner, which: range) -> None:
        for step in which:
            learner.step(examples_of(8, seed=step), loss_with(), progress=step / 6)

    undisturbed = tiny_policy()
    steps(Learner(undisturbed, settings, seed=5, num_steps=6), range(6))

    stopped = tiny_policy()
    learner = Learner(stopped, settings, seed=5, num_steps=6)
    steps(learner, range(3))
    numbers, tensors = learner.state()
    resumed = tiny_policy()
    resumed.load_state_dict(stopped.state_dict())
    again = Learner(resumed, settings, seed=5, num_steps=6)
    again.load_state(json.loads(json.dumps(numbers)), tensors)
    steps(again, range(3, 6))

    assert resumed.version == undisturbed.version == 24
    for name, value in undisturbed.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_epochs_and_minibatches_count_as_updates_and_the_schedule_spans_them(
    policy: Policy, examples_of: Examples
) -> None:
    settings = Learning(optimizer=AdamW(lr=1e-3), schedule=Linear(), epochs=2, minibatches=4)
    learner = Learner(policy, settings, seed=0, num_steps=2)
    first = learner.step(examples_of(8), loss_with(), progress=0.0).metrics
    second = learner.step(examples_of(8), loss_with(), progress=0.5).metrics
    assert learner.updates == 16
    # The rate falls linearly over 16 updates; a step reports the mean of its eight.
    assert first["learning_rate"] == pytest.approx(1e-3 * (1 - 3.5 / 16))
    assert second["learning_rate"] == pytest.approx(1e-3 * (1 - 11.5 / 16))


@pytest.mark.parametrize(("bound", "updates"), [(1e9, 6), (1e-6, 0)])
def test_updates_of_a_step_stop_once_the_weights_have_moved_too_far(
    policy: Policy, examples_of: Examples, bound: float, updates: int
) -> None:
    """The old log-probabilities of the examples are not those of the policy, so that a small bound stops at once."""
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    learner = Learner(policy, Learning(epochs=2, minibatches=3, stop_at=bound), seed=0, num_steps=1)
    learned = learner.step(examples_of(9), loss_with(), progress=0.0)
    assert learner.updates == updates
    assert learned.metrics["stopped"] == float(updates == 0)
    same = all(torch.equal(before[name], value) for name, value in policy.state_dict().items())
    assert same == (updates == 0)
    assert all(p.grad is None for p in policy.parameters())


def test_how_far_weights_have_moved_is_summed_over_a_trajectory(examples_of: Examples) -> None:
    """Differences of 0.5 on each of T tokens are T / 2; demonstrated tokens, which have no draw, do not count."""
    examples = [replace(e, columns={**e.columns, OLD_LOGP: np.full(e.num_trained, -2.0)}) for e in examples_of(2)]
    signals = [{LOGP: np.full(e.num_trained, -1.5)} for e in examples]
    expected = np.mean([e.num_trained / 2 for e in examples])
    assert moved_by(examples, signals) == pytest.approx(expected)
    lengths = np.array([e.num_trained / 2 for e in examples])
    assert moved_by(examples, signals, "k3") == pytest.approx((np.exp(lengths) - 1 - lengths).mean())
    shown = replace(
        examples[0], columns={**examples[0].columns, BEHAVIOR_LOGP: np.full(examples[0].num_trained, np.nan)}
    )
    assert moved_by([shown], signals[:1]) == 0.0


def test_every_example_is_seen_once_per_epoch(policy: Policy, examples_of: Examples) -> None:
    examples, seen = examples_of(10), []

    def remember(tokens: TokenArrays) -> PerToken:
        seen.extend(float(r) for r in tokens.reward_N)
        return PerToken(loss_T=-tokens.logp_T)

    learner = Learner(policy, Learning(epochs=2, minibatches=3), seed=0, num_steps=1)
    learner.step(examples, Loss(per_token=remember, reducer=Tokens()), progress=0.0)
    rewards = sorted(np.float32(e.reward) for e in examples)
    assert sorted(map(np.float32, seen[:10])) == rewards == sorted(map(np.float32, seen[10:]))
    assert seen[:10] != seen[10:]


def test_clipping_bounds_the_update_and_reports_the_norm_before_it(policy: Policy, examples_of: Examples) -> None:
    learner = Learner(policy, Learning(clip_norm=1e-3), seed=0, num_steps=1)
    norms = []

    def note(tokens: TokenArrays) -> PerToken:
        return PerToken(loss_T=-tokens.logp_T)

    step = learner.optimizers[0].step
    learner.optimizers[0].step = lambda: (  # type: ignore[method-assign, misc]
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in policy.parameters()])),
        step(),
    )
    metrics = learner.step(examples_of(4), Loss(per_token=note, reducer=Tokens()), progress=0.0).metrics
    assert float(norms[0]) == pytest.approx(1e-3, rel=1e-3)
    assert metrics["gradient_norm"] > 1e-2


def test_a_gradient_is_not_written_where_clipping_would_multiply_it_by_one(policy: Policy) -> None:
    weight = next(policy.parameters())
    for norm, writes in ((0.5, 0), (1.0 - 2e-6, 0), (1.0, 1), (2.0, 1)):  # torch divides by the norm and a millionth
        own = Weights({"weight": weight}, Learning(clip_norm=1.0))
        weight.grad = torch.full_like(weight, 0.25)
        grad, version = weight.grad, weight.grad._version
        own.update(torch.tensor(norm), 1.0)
        assert grad.flatten()[0].item() == pytest.approx(0.25 * min(1.0, 1.0 / norm), rel=1e-5)
        assert grad._version == version + writes


def test_a_loss_that_is_not_finite_stops_before_any_weight_changes(policy: Policy, examples_of: Examples) -> None:
    before = {name: value.clone() for name, value in policy.state_dict().items()}

    def broken(tokens: TokenArrays) -> PerToken:
        return PerToken(loss_T=tokens.logp_T / 0.0)

    with pytest.raises(AlarmStop, match="update 1 is not finite; the weights are those before it"):
        Learner(policy, Learning(), seed=0, num_steps=1).step(
            examples_of(4), Loss(per_token=broken, reducer=Tokens()), progress=0.0
        )
    assert all(torch.equal(before[name], value) for name, value in policy.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [AdamW(lr=3e-3), Muon(lr=3e-3)], ids=lambda o: o.kind)
def test_likelihood_of_a_demonstration_rises(policy: Policy, examples_of: Examples, optimizer: Optimizer) -> None:
    examples = examples_of(4)
    learner = Learner(policy, Learning(optimizer=optimizer), seed=0, num_steps=30)
    loss = Loss(per_token=Likelihood(), reducer=Tokens())
    losses = [learner.step(examples, loss, progress=step / 30).metrics["loss"] for step in range(30)]
    assert losses[-1] < losses[0] - 1.0


def test_muon_updates_hidden_matrices_and_adamw_the_rest(policy: Policy) -> None:
    parameters = dict(policy.named_parameters())
    muon, adamw = Muon().build(parameters)
    names = {id(p): name for name, p in parameters.items()}
    by_muon = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    by_adamw = {names[id(p)] for group in adamw.param_groups for p in group["params"]}
    assert by_muon | by_adamw == set(parameters)
    assert not by_muon & by_adamw
    assert all("proj" in name for name in by_muon)
    assert any("embed" in name for name in by_adamw)
