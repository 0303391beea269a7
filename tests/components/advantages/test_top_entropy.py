import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from posttrain.components.advantages import Advantage
from posttrain.components.advantages.fixed_baseline import FixedBaseline
from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.top_entropy import TopEntropy
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.signals import OLD_ENTROPY, OLD_VALUE, Signal
from posttrain.types import Batch, Credit
from tests.builders import batch, gradients, random_batch, tokens

SURE, UNSURE = [0.1, 0.3, 0.2], [2.0, 1.5, 0.4, 0.9]
"""A right and a wrong attempt: seven tokens, of which the most uncertain are all in the second."""


def two(theirs: Sequence[Sequence[float]] = ()) -> Batch:
    signals = {OLD_ENTROPY: [SURE, UNSURE]} | ({Signal("entropy", of="reference"): theirs} if theirs else {})
    return batch([[1, 0]], token_rewards=[[0, 0, 1.0], [0, 0, 0, 0.0]], signals=signals)


def credit_of(given: Batch, inner: Advantage | None = None, **settings: object) -> Credit:
    member = TopEntropy(advantage=inner or GroupMean(scale="none"), **settings)  # type: ignore[arg-type]
    return member(member.start(), given)[1]


def lists(credit: Credit) -> list[list[float]]:
    return [a.tolist() for a in credit.advantages]


def test_by_hand() -> None:
    """Two of seven tokens (0.2 is 1.4 of them), both of the second rollout; a mean over two is 7/2 of that over all."""
    assert lists(credit_of(two())) == [[0.0] * 3, [-1.75, -1.75, 0.0, 0.0]]
    assert lists(credit_of(two(), mean="all")) == [[0.0] * 3, [-0.5, -0.5, 0.0, 0.0]]
    assert lists(credit_of(two(), mean="all", share=0.7)) == [[0.0, 0.5, 0.0], [-0.5] * 4]
    assert lists(credit_of(two(), mean="all", share=0.0)) == [[0.0] * 3, [-0.5, 0.0, 0.0, 0.0]], "one at least"


def test_the_lowest_are_the_others() -> None:
    """The lowest 5/7 are all but the highest 2/7."""
    lowest = credit_of(two(), mean="all", which="lowest", share=5 / 7)
    assert lists(lowest) == [[0.5] * 3, [0.0, 0.0, -0.5, -0.5]]


def test_of_each_sequence() -> None:
    """One of three tokens and one of four, so that the mean over them is 7/2 of that over all."""
    assert lists(credit_of(two(), scope="sequence")) == [[0.0, 1.75, 0.0], [-1.75, 0.0, 0.0, 0.0]]


def test_all_tokens_are_the_other_advantage() -> None:
    given = random_batch(needs={OLD_ENTROPY})
    _, plain = GroupMean()({}, given)
    for all_of_them, alone in zip(credit_of(given, GroupMean(), share=1.0).advantages, plain.advantages, strict=True):
        np.testing.assert_array_equal(all_of_them, alone)


@pytest.mark.parametrize("share", [0.0, 0.07, 0.1, 0.2, 0.28, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("length", [1, 5, 10, 50, 100])
@pytest.mark.parametrize("which", ["highest", "lowest"])
def test_exactly_a_share_rounded_up(share: float, length: int, which: str) -> None:
    entropy_T = np.random.default_rng(length).permutation(length)
    cuts = [length // 3, length // 2]
    entropies = [part.tolist() for part in np.split(entropy_T, cuts)]
    given = batch([[1, 1], [0]], token_rewards=[[0.0] * len(e) for e in entropies], signals={OLD_ENTROPY: entropies})
    everybody = FixedBaseline(baseline=-1.0)
    credit = credit_of(given, everybody, share=share, which=which, mean="all")
    kept_T = np.concatenate(credit.advantages) != 0
    assert kept_T.sum() == max(math.ceil(round(share * length, 6)), 1)
    left_T = entropy_T[~kept_T]
    if which == "highest":
        assert (entropy_T[kept_T][:, None] > left_T).all()
    else:
        assert (entropy_T[kept_T][:, None] < left_T).all()


def test_the_last_one_brings_its_equals() -> None:
    given = batch([[1, 0]], signals={OLD_ENTROPY: [[3.0, 1.0], [1.0, 0.5]]})
    assert lists(credit_of(given, mean="all", share=0.5)) == [[0.5, 0.5], [-0.5, 0.0]]
    assert lists(credit_of(given, share=0.5)) == [pytest.approx([2 / 3, 2 / 3]), pytest.approx([-2 / 3, 0.0])]
    assert lists(credit_of(given, mean="all", share=0.5, which="lowest")) == [[0.0, 0.5], [-0.5, -0.5]]


def test_left_out_tokens_have_no_gradient() -> None:
    """Not even far from the policy that wrote them, and whatever clip there is."""
    advantages = lists(credit_of(two()))
    these = tokens([[-1.0] * 3, [-1.0] * 4], old_logp=[[-1.5] * 3, [-0.9] * 4], advantage=advantages)
    slope_T = gradients(PPOClip(clip_high=0.28, dual_clip=10.0)(these).loss_T.mean(), these)["logp_T"]
    assert slope_T[[0, 1, 2, 5, 6]].tolist() == [0.0] * 5
    # Advantage -0.5, a mean over two tokens, ratio e^-0.1.
    torch.testing.assert_close(slope_T[3:5], torch.full((2,), 0.25 * math.exp(-0.1), dtype=torch.float64))


def test_metrics() -> None:
    found = credit_of(two([[5.0, 0.1, 0.2], [4.0, 0.3, 0.4, 0.9]]), beside="reference").metrics
    assert found["kept_entropy"] == pytest.approx(1.75)
    assert found["left_out_entropy"] == pytest.approx((0.1 + 0.3 + 0.2 + 0.4 + 0.9) / 5)
    assert found["overlap"] == 0.5, "it would have chosen the first token of each"
    assert credit_of(two()).metrics.keys() == {"kept_entropy", "left_out_entropy"}
    assert credit_of(two(), share=1.0).metrics.keys() == {"kept_entropy"}


def test_what_it_needs_and_what_it_leaves_alone() -> None:
    member = TopEntropy(advantage=GAE(), beside="base")
    assert member.needs == {OLD_VALUE, OLD_ENTROPY, Signal("entropy", of="base")}
    given = random_batch(needs=member.needs)
    _, plain = GAE()(GAE().start(), given)
    _, credit = member(member.start(), given)
    assert credit.metrics["overlap"] >= 0
    for ours, theirs in zip(credit.value_targets, plain.value_targets, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert plain.value_targets, "the critic learns from every token"


def test_without_any_token() -> None:
    given = batch([[1, 0]], token_rewards=[[], []], signals={OLD_ENTROPY: [[], []]})
    for scope in ("step", "sequence"):
        credit = credit_of(given, scope=scope)
        assert (lists(credit), credit.metrics) == ([[], []], {})
