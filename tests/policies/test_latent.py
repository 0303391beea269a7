"""The part of a reward model that infers what a user likes: its formulas by hand, its texts, its files."""

import math
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies import Packed
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.latent import Latent, divergence, drawn, query_value
from posttrain.policies.loading import load_language_model
from posttrain.signals import SCORE, SCORES, STATE

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)


def load(source: str, latent: int = 3, models: dict[str, LanguageModelPolicy] | None = None) -> LanguageModelPolicy:
    model = Model(source=source, head="reward", latent=latent, trained=True)
    return load_language_model("reward", model, models or {}, CPU)


def test_the_prior_stands_for_no_pair_and_numbers_are_clamped() -> None:
    head, none = Latent(4, 3), torch.zeros(0, 4)
    assert all(torch.equal(x, torch.zeros(3)) for x in head.encode(none, none))
    large = 1e4 * torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    for inferred in head.encode(large, -large):
        assert inferred.abs().max() <= 1.0


def test_the_order_of_pairs_does_not_matter_and_users_are_alone_in_company() -> None:
    draw = torch.Generator().manual_seed(0)
    chosen, rejected = torch.randn(2, 6, 4, generator=draw), torch.randn(2, 6, 4, generator=draw)
    head = Latent(4, 3)
    together = head.encode(chosen, rejected)
    for user in range(2):
        alone = head.encode(chosen[user].flip(0), rejected[user].flip(0))
        for a, b in zip(alone, together, strict=True):
            torch.testing.assert_close(a, b[user])
    swapped, _ = head.encode(rejected, chosen)
    assert (swapped - together[0]).abs().max() > 1e-3


def test_states_are_centered() -> None:
    draw = torch.Generator().manual_seed(0)
    head, state = Latent(4, 3), torch.randn(6, 4, generator=draw)
    before = head.decode(state, torch.zeros(6, 3))
    head.center(state + 5.0)
    after = head.decode(state + 5.0 + state.mean(0), torch.zeros(6, 3))
    torch.testing.assert_close(after, before)


def test_a_reward_is_the_same_beside_any_others() -> None:
    """To the bit: which texts are scored together depends on the number of samplers."""
    head, generator = Latent(16, 3), torch.Generator().manual_seed(0)
    state_RD, z_RZ = (torch.randn(75, size, generator=generator) for size in (16, 3))
    whole = head.decode(state_RD, z_RZ)
    for first, count in ((0, 1), (3, 2), (7, 33), (40, 35)):
        part = slice(first, first + count)
        assert torch.equal(head.decode(state_RD[part], z_RZ[part]), whole[part])


def test_draws_lie_on_the_sphere_and_the_divergence_is_that_of_gaussians() -> None:
    """KL(N(1, e^-1) || N(0, 1)) = (1 + 1/e - 1 + 1) / 2; N(0, 1) has none."""
    z = drawn(torch.tensor([3.0, 0.0]), torch.zeros(2), torch.tensor([0.0, 4.0]))
    torch.testing.assert_close(z, torch.tensor([0.6, 0.8]) * math.sqrt(2))
    assert divergence(torch.tensor([1.0]), torch.tensor([-1.0])).item() == pytest.approx((1 / math.e + 1) / 2)
    assert divergence(torch.zeros(7), torch.zeros(7)).item() == 0.0


def test_the_value_of_queries_by_hand() -> None:
    """Variances [1, 3] and [2, 2]: log(2 pi 4) - (log(4 pi^2 3) + log(4 pi^2 4)) / 2."""
    found = query_value(torch.tensor([[1.0, 3.0], [2.0, 2.0]]))
    square = 4 * math.pi**2
    assert found.item() == pytest.approx(math.log(8 * math.pi) - (math.log(3 * square) + math.log(4 * square)) / 2)


def test_a_text_is_scored_after_the_pairs_that_stand_before_it(folder: Path) -> None:
    policy = load(str(folder))
    assert policy.latent is not None
    (end, *_) = policy.tokenizer.end_token_ids
    texts = [[65, 66, end], [67, end], [70, 71, 72, end]]
    whole = torch.tensor([i for text in texts for i in text])
    bare = torch.tensor(texts[2])
    packed = Packed(token_ids_L=torch.cat([whole, bare]), starts=(0, 9, 13))
    found = policy.evaluate(packed, torch.tensor([8, 12]), frozenset({SCORE, SCORES, STATE}))
    states = [policy.body.hidden(Packed(token_ids_L=torch.tensor(t), starts=(0, len(t))))[-1:] for t in texts]
    mean, log_variance = policy.latent.encode(states[0], states[1])
    torch.testing.assert_close(found[SCORES][0, 1:], torch.cat([mean, log_variance]))
    torch.testing.assert_close(found[SCORE][:1], policy.latent.decode(states[2], mean[None]))
    torch.testing.assert_close(found[SCORE][1:], policy.latent.decode(states[2], torch.zeros(1, 3)))
    assert torch.equal(found[SCORES][:, 0], found[SCORE]) and (found[SCORE][0] - found[SCORE][1]).abs() > 1e-4
    with pytest.raises(UserError, match=r"1 texts stand before .* two for each pair"):
        policy.evaluate(Packed(token_ids_L=whole[3:], starts=(0, 6)), torch.tensor([5]), frozenset({SCORE}))


def test_it_is_saved_and_copied(folder: Path, tmp_path: Path) -> None:
    policy = load(str(folder))
    assert policy.latent is not None
    torch.nn.init.constant_(policy.latent.last.weight, 0.5)
    (tmp_path / "saved").mkdir()
    policy.save(tmp_path / "saved")
    for copy in (load(str(tmp_path / "saved")), load("role:policy", models={"policy": policy})):
        assert copy.latent is not None and copy.latent is not policy.latent
        assert all(torch.equal(a, b) for a, b in zip(copy.latent.parameters(), policy.latent.parameters(), strict=True))
    assert [name for name in ("value_head.bias", "body.norm.weight", "latent.mean.bias") if policy.is_free(name)] == [
        "latent.mean.bias"
    ]
    with pytest.raises(UserError, match=r"head .* has the tensors .* this model needs"):
        load(str(tmp_path / "saved"), latent=4)


def test_it_is_of_a_reward_head() -> None:
    for other in ({}, {"head": "reward", "outputs": 2}):
        with pytest.raises(ValidationError, match="latent is of a reward head"):
            Model(source="pebble", latent=3, **other)  # type: ignore[arg-type]
