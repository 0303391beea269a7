"""Flows: densities by hand, gradients by differences, and the same numbers from sampler and learner."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.noises.constant import Constant
from posttrain.components.noises.learned import Learned
from posttrain.components.noises.sde import SDE
from posttrain.components.shapes.flow import Flow
from posttrain.datasets import chains
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.flow import FlowPolicy, normal_logp
from posttrain.policies.loading import load_policy
from posttrain.signals import ENTROPY, LOGP, NOISE, VALUE, VELOCITY
from posttrain.types import Completion, Segment, Task, Trajectory
from tests.flows import CPU, made_flow, packed, sampled, saved, signals, trajectory_of

NOISES = (Constant(std=0.3), Learned(), SDE())
every_noise = pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.kind)
every_token = pytest.mark.parametrize("token", ["step", "chain"])


def still(**settings: object) -> FlowPolicy:
    """A flow whose velocity is 0 everywhere: as it is made."""
    policy = load_policy(
        "policy", Model(source="new", shape=Flow(**{"steps": 2, "noise": Constant(), **settings})), {}, CPU
    )  # type: ignore[arg-type]
    assert isinstance(policy, FlowPolicy)
    return policy


def chain(*points: tuple[float, float]) -> Trajectory:
    vectors = np.array(points, np.float32)
    made = Completion(
        token_ids=np.arange(1, len(points) + 1),
        logp=np.zeros(len(points), np.float32),
        stop_reason="stop",
        version=0,
        text="",
        vectors=vectors,
    )
    return trajectory_of(still(), made)


def test_densities_by_hand() -> None:
    """Start (1, 2): -2.5 - log 2 pi. A step of 0.5 in one number, std 0.5: z = 1, so -0.5 - log 2 pi + log 4."""
    logp_T = signals(still(noise=Constant(std=0.5)), chain((1, 2), (1.5, 2), (1.5, 1)))[LOGP]
    two_pi = math.log(2 * math.pi)
    expected = [-2.5 - two_pi, -0.5 - two_pi + math.log(4), -2.0 - two_pi + math.log(4)]
    assert logp_T.tolist() == pytest.approx(expected, abs=1e-5)


def test_entropies_by_hand_and_temperature_stretches_the_variance() -> None:
    policy = still(noise=Constant(std=0.5))
    these = chain((1, 2), (1.5, 2), (1.5, 1))
    unit = math.log(2 * math.pi * math.e)  # of two numbers with std 1
    entropy_T = signals(policy, these, needs=frozenset({ENTROPY}))[ENTROPY]
    assert entropy_T.tolist() == pytest.approx([unit, unit - math.log(4), unit - math.log(4)], abs=1e-5)
    hot_T = signals(policy, these, needs=frozenset({ENTROPY}), temperature=4.0)[ENTROPY]
    assert hot_T.tolist() == pytest.approx([unit, unit, unit], abs=1e-5)


def test_the_velocity_moves_the_mean_by_its_share_of_the_time() -> None:
    policy = still(noise=Constant(std=0.5))
    with torch.no_grad():
        policy.velocity[-1].bias.copy_(torch.tensor([2.0, 0.0]))  # two steps: each moves by 1
    logp_T = signals(policy, chain((0, 0), (1, 0), (2, 0)))[LOGP]
    at_the_mean = -math.log(2 * math.pi) + math.log(4)
    assert logp_T[1:].tolist() == pytest.approx([at_the_mean, at_the_mean], abs=1e-5)


def test_means_are_held_within_the_bound() -> None:
    policy = still(noise=Constant(std=0.5), bound=1.0)
    logp_T = signals(policy, chain((3, 0), (1, 0), (1, 0)))[LOGP]
    assert logp_T[1:].tolist() == pytest.approx([-math.log(2 * math.pi) + math.log(4)] * 2, abs=1e-5)


@every_noise
@every_token
def test_the_samplers_log_probabilities_are_the_learners(noise, token: str) -> None:  # type: ignore[no-untyped-def]
    policy = made_flow(noise=noise, token=token, condition=2)
    completions = sampled(policy, 5, prompt="0.5 -1")
    logp_T = signals(policy, *(trajectory_of(policy, c, (0.5, -1.0)) for c in completions))[LOGP]
    expected = np.concatenate([c.logp for c in completions])
    np.testing.assert_allclose(logp_T.detach().numpy(), expected, rtol=1e-5, atol=1e-5)
    assert np.unique(expected).size == expected.size


@every_noise
def test_a_chain_has_the_sum_of_its_steps(noise) -> None:  # type: ignore[no-untyped-def]
    steps, whole = made_flow(noise=noise), made_flow(noise=noise, token="chain")
    for step, chain in zip(sampled(steps), sampled(whole), strict=True):
        assert step.text == chain.text
        assert chain.logp.shape == (1,)
        assert float(chain.logp[0]) == pytest.approx(float(step.logp.sum()), abs=1e-5)


def test_per_number_is_the_root_of_the_density() -> None:
    """Three steps in the plane draw eight numbers, the start included; a step draws two."""
    plain, root = made_flow(token="chain"), made_flow(token="chain", per_number=True)
    needs = frozenset({ENTROPY})
    for a, b in zip(sampled(plain), sampled(root), strict=True):
        assert float(b.logp[0]) == pytest.approx(float(a.logp[0]) / 8, rel=1e-5)
        own, other = (
            signals(plain, trajectory_of(plain, a), needs=needs),
            signals(root, trajectory_of(root, b), needs=needs),
        )
        assert float(other[ENTROPY]) == pytest.approx(float(own[ENTROPY]) / 8, rel=1e-5)
    steps, roots = made_flow(), made_flow(per_number=True)
    np.testing.assert_allclose(sampled(roots)[0].logp, sampled(steps)[0].logp / 2, rtol=1e-5)


@every_noise
@every_token
def test_finite_differences(noise, token: str) -> None:  # type: ignore[no-untyped-def]
    policy = made_flow(noise=noise, token=token, dtype="float64", condition=1)
    these = [trajectory_of(policy, c, (0.3,)) for c in sampled(policy, 2, prompt="0.3")]

    def total() -> torch.Tensor:
        return signals(policy, *these)[LOGP].sum()

    total().backward()
    for name, parameter in policy.named_parameters():
        flat, gradient = parameter.data.view(-1), parameter.grad
        assert gradient is not None, name
        for i in range(0, len(flat), max(1, len(flat) // 3)):
            kept = float(flat[i])
            flat[i] = kept + 1e-6
            above = float(total().detach())
            flat[i] = kept - 1e-6
            below = float(total().detach())
            flat[i] = kept
            assert float(gradient.view(-1)[i]) == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-5), name


def test_signals_do_not_depend_on_what_is_packed_beside() -> None:
    policy = made_flow(condition=1)
    first, second = (trajectory_of(policy, c, (float(i),)) for i, c in enumerate(sampled(policy, 2, prompt="1")))
    both = signals(policy, first, second)[LOGP]
    alone = torch.cat([signals(policy, first)[LOGP], signals(policy, second)[LOGP]])
    torch.testing.assert_close(both, alone, rtol=1e-5, atol=1e-5)


def with_draw(end: tuple[float, float], noise: tuple[float, float], place: int, steps: int = 2) -> Trajectory:
    segments = (
        Segment(actor="prompt", token_ids=np.zeros(1, np.int64), vectors=np.zeros((1, 2), np.float32)),
        Segment(actor="policy", token_ids=np.array([steps + 1]), vectors=np.array([end], np.float32)),
        Segment(
            actor="draw", token_ids=np.array([steps + 2 + place]), trained=True, vectors=np.array([noise], np.float32)
        ),
    )
    return Trajectory(task=Task(key="task", prompt="draw"), segments=segments, stop_reason="stop")


def test_a_draw_has_minus_the_matching_error_by_hand() -> None:
    """A velocity of 0 is off by (x - e) = (1, 2): mean square 2.5; at place 1 of 2 half of the point is noise."""
    needs = frozenset({NOISE, VELOCITY})
    found = signals(still(), with_draw((2, 2), (1, 0), 1), needs=needs)
    assert found[LOGP].tolist() == pytest.approx([-2.5])
    assert found[NOISE].tolist() == [0.5]
    assert found[VELOCITY].tolist() == [[0.0, 0.0]]


def test_a_draw_takes_the_velocity_at_the_mixed_point() -> None:
    policy = made_flow(steps=2)
    found = signals(policy, with_draw((2, 2), (1, 0), 1), needs=frozenset({VELOCITY}))
    mixed = policy.velocity_at(torch.tensor([[1.5, 1.0]]), torch.tensor([1]), torch.zeros(1, 0))
    torch.testing.assert_close(found[VELOCITY], mixed)
    error = ((mixed - torch.tensor([[1.0, 2.0]])) ** 2).mean()
    assert float(found[LOGP].detach()) == pytest.approx(-float(error.detach()), rel=1e-5)


@every_token
def test_a_demonstration_is_learned_from_its_draws(token: str) -> None:
    policy = made_flow(token=token)
    task = Task(key="task", prompt="draw 1", demonstrations=("1.5 -2",))
    made = policy.demonstration(task, "1.5 -2", 7, 3)
    assert made.num_trained == 8 and {s.actor for s in made.segments if s.trained} == {"draw"}
    assert made.demonstrated
    ends = made.segments[1].vectors
    assert ends is not None and ends[0, -2 if token == "chain" else 0 :].tolist() == [1.5, -2.0]
    again, other = policy.demonstration(task, "1.5 -2", 7, 3), policy.demonstration(task, "1.5 -2", 7, 4)
    assert np.array_equal(made.vectors, again.vectors) and not np.array_equal(made.vectors, other.vectors)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="must be 2 numbers"):
        policy.demonstration(task, "1.5 x", 7, 3)


def test_chains_are_the_same_alone_and_in_any_batch() -> None:
    policy = made_flow()
    many, few = sampled(policy, 150), sampled(policy, 2)
    for a, b in zip(many, few, strict=False):
        assert np.array_equal(a.vectors, b.vectors) and np.array_equal(a.logp, b.logp)  # type: ignore[arg-type]
    assert len({c.text for c in many}) == 150
    assert sampled(policy, 1, key=1)[0].text != few[0].text


def test_without_temperature_the_chain_follows_the_means() -> None:
    policy = made_flow(noise=Constant(std=0.5))
    (made,) = sampled(policy, 1, temperature=0.0)
    assert made.vectors is not None
    assert made.logp[1:].tolist() == pytest.approx([-math.log(2 * math.pi) + math.log(4)] * 3, abs=1e-5)
    assert [np.float32(x) for x in made.text.split()] == made.vectors[-1].tolist()


def test_a_flow_survives_its_folder(tmp_path: Path) -> None:
    policy = made_flow(noise=Learned(), condition=1, token="chain")
    again = saved(policy, tmp_path / "flow")
    assert again.shape == policy.shape
    for name, tensor in policy.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


def test_a_copy_is_one_and_a_critic_sees_the_condition() -> None:
    policy = made_flow(condition=2)
    copy = load_policy("reference", Model(source="role:policy"), {"policy": policy}, CPU)
    completions = sampled(policy, prompt="1 2")
    these = [trajectory_of(policy, c, (1.0, 2.0)) for c in completions]
    batch = packed(*these)
    with torch.no_grad():
        policy.velocity[-1].bias.add_(1.0)
    changed = policy.evaluate(batch.packed, batch.positions_T)[LOGP]
    assert not torch.allclose(copy.evaluate(batch.packed, batch.positions_T)[LOGP], changed)
    critic = load_policy("critic", Model(source="role:policy", head="value", trained=True), {"policy": policy}, CPU)
    assert critic.evaluate(batch.packed, batch.positions_T, frozenset({VALUE}))[VALUE].tolist() == [0.0] * 12
    with torch.no_grad():
        critic.value[-1].weight.fill_(1.0)  # type: ignore[index, union-attr, operator]
    other = trajectory_of(policy, completions[0], (1.0, 3.0))
    value_T = signals(critic, these[0], other)[VALUE]  # type: ignore[arg-type]
    assert len(set(value_T.tolist())) == 2


def test_what_a_flow_does_not_have_is_refused() -> None:
    shape = Flow(steps=2, noise=Constant())
    for settings in ({"head": "reward", "outputs": 2}, {"context": 5}, {"projection": 4}):
        with pytest.raises(UserError, match="a flow has one output, no latent, no lora, no context and no projection"):
            load_policy("policy", Model(source="new", shape=shape, **settings), {}, CPU)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not value"):
        signals(still(), chain((0, 0), (0, 0), (0, 0)), needs=frozenset({VALUE}))
    with pytest.raises(UserError, match="there are none here"):
        signals(still(), chain((0, 0), (0, 0), (0, 0)), needs=frozenset({NOISE}))


def test_standard_normal_by_hand() -> None:
    assert float(normal_logp(torch.zeros(1, 3))) == pytest.approx(-1.5 * math.log(2 * math.pi))


def test_times_are_one_from_each_stretch() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = chains.stratified(range(1, 13), 6, rng)
        assert [(place - 1) // 2 for place in drawn] == [0, 1, 2, 3, 4, 5]
