"""Sparse autoencoders: the formula by hand, what is lost, files, and what they are not."""

from pathlib import Path

import pytest
import torch

from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.loading import load_language_model, load_policy
from posttrain.policies.sparse_coder import Sizes, SparseCoder
from posttrain.signals import LOGP

CPU = torch.device("cpu")


def coder(k: int = 2) -> SparseCoder:
    """Latents read and write the axes and one diagonal; the bias of the decoder is (1, 0)."""
    made = SparseCoder("sae", Sizes(width=2, latents=3, k=k))
    half = 0.5**0.5
    with torch.no_grad():
        made.encoder.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        made.decoder.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [half, half]]))
        made.encoder_bias.copy_(torch.tensor([0.0, -1.0, 0.0]))
        made.decoder_bias.copy_(torch.tensor([1.0, 0.0]))
    return made


def test_the_largest_latents_write_the_reconstruction() -> None:
    """x - b is (2, 3): latents are 2, 2 and 5. Of one, 5 of the diagonal is left; of three all are."""
    x = torch.tensor([[3.0, 3.0]])
    diagonal = 5 * 0.5**0.5
    assert coder(1)(x)[0].tolist() == pytest.approx([1 + diagonal, diagonal])
    assert coder(3)(x)[0].tolist() == pytest.approx([1 + 2 + diagonal, 2 + diagonal])
    assert coder(3)(torch.tensor([[0.0, -1.0]]))[0].tolist() == [1.0, 0.0], "no latent is positive"
    assert coder(1)(x.expand(2, 4, 2)).shape == (2, 4, 2)


def test_the_fraction_of_variance_that_is_lost() -> None:
    made, states = coder(3), torch.tensor([[3.0, 3.0], [0.0, -1.0]])
    lost = (states - made(states)).square().sum() / (1.5**2 * 2 + 2.0**2 * 2)
    assert made.unexplained(states).item() == pytest.approx(lost.item())
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(made.unexplained(states), list(made.parameters())))
    with pytest.raises(UserError, match="are all equal"):
        made.unexplained(torch.ones(3, 2))


def test_rows_of_the_decoder_have_norm_one_and_begin_as_the_encoder() -> None:
    made = SparseCoder("sae", Sizes(width=5, latents=9, k=2), seed=1)
    torch.testing.assert_close(made.decoder.norm(dim=1), torch.ones(9))
    torch.testing.assert_close(made.decoder, made.encoder / made.encoder.norm(dim=1, keepdim=True))
    assert not torch.equal(made.encoder, SparseCoder("sae", Sizes(width=5, latents=9, k=2), seed=2).encoder)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    made = SparseCoder("sae", Sizes(width=5, latents=9, k=2), seed=1)
    made.save(tmp_path)
    loaded = load_policy("sae", Model(source=str(tmp_path)), {}, CPU)
    assert isinstance(loaded, SparseCoder) and loaded.sizes == made.sizes and not loaded.writes
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), made.parameters(), strict=True))
    copied = load_policy("other", Model(source="role:sae"), {"sae": made}, CPU)
    assert isinstance(copied, SparseCoder) and copied.role == "other" and copied.encoder is not made.encoder
    with pytest.raises(UserError, match="a language model is needed here"):
        load_language_model("policy", Model(source=str(tmp_path)), {}, CPU)
    with pytest.raises(UserError, match="gives , not logp"):
        made.check_needs(frozenset({LOGP}), {})
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"latents": 9', '"latents": 8'))
    with pytest.raises(UserError, match="do not fit the weights beside it"):
        load_policy("sae", Model(source=str(tmp_path)), {}, CPU)


def test_it_is_the_librarys() -> None:
    """The same reconstruction and the same fraction of variance unexplained as EleutherAI's sparsify."""
    sparsify = pytest.importorskip("sparsify")
    ours = SparseCoder("sae", Sizes(width=24, latents=96, k=5), seed=2)
    theirs = sparsify.SparseCoder(24, sparsify.SparseCoderConfig(num_latents=96, k=5))
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        ours.encoder_bias.copy_(torch.randn(96, generator=generator) * 0.1)
        ours.decoder_bias.copy_(torch.randn(24, generator=generator) * 0.1)
        theirs.encoder.weight.copy_(ours.encoder)
        theirs.encoder.bias.copy_(ours.encoder_bias)
        theirs.W_dec.copy_(ours.decoder)
        theirs.b_dec.copy_(ours.decoder_bias)
    states = torch.randn(64, 24, generator=generator)
    found = theirs(states)
    assert torch.allclose(ours(states), found.sae_out, atol=1e-5)
    assert float(ours.unexplained(states).detach()) == pytest.approx(float(found.fvu.detach()), abs=1e-5)
