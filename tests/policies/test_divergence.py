"""The exact divergence, against the sum over the vocabulary written out."""

from pathlib import Path

import pytest
import torch

from posttrain.policies import Packed, load_policy
from posttrain.policies._divergence import exact_kl
from posttrain.policies.folder import new_folder
from posttrain.recipe import Model


@pytest.mark.parametrize("chunk_logits", [0, 1])
def test_it_is_the_sum_over_the_vocabulary(tmp_path: Path, chunk_logits: int) -> None:
    shape = {"layers": 1, "width": 16, "heads": 2, "kv_heads": 1, "context": 64}
    folders = [new_folder(tmp_path / str(seed), seed=seed, **shape) for seed in (0, 1)]
    ours, theirs = (load_policy("policy", Model(source=str(f)), {}, torch.device("cpu")) for f in folders)
    ids = torch.randint(0, 256, (40,), generator=torch.Generator().manual_seed(0))
    packed, positions_T = Packed(token_ids_L=ids, starts=(0, 15, 40)), torch.tensor([*range(1, 15), *range(16, 40)])
    found_T = exact_kl(ours, theirs, packed, positions_T, temperature=0.5, chunk_logits=chunk_logits)
    with torch.no_grad():
        p_TV, q_TV = (
            (m.body.logits(m.body.hidden(packed))[positions_T - 1] / 0.5).double().softmax(-1) for m in (ours, theirs)
        )
    by_hand_T = (p_TV * (p_TV / q_TV).log()).sum(-1)
    torch.testing.assert_close(found_T.double(), by_hand_T, rtol=1e-4, atol=1e-6)
    assert (found_T > 0).all()
    assert not exact_kl(ours, ours, packed, positions_T, temperature=1.0).any()
