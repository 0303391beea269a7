"""What a reward model infers about a user from a few of the user's pairs, and the reward that depends on it.

Source: VPL, arXiv:2408.10075, and its releases (WEIRDLabUW/vpl_llm at fdfdfa7, WEIRDLabUW/vpl at 531bb97). With e the
state after a text:

    pair       MLP([e(chosen), e(rejected)]), then self-attention with one head over the pairs, and the mean over them
    z ~ N(m, exp(l)), m and l linear in it, both clamped to [-1, 1]
    reward     MLP([e(text), z]), two hidden layers, leaky ReLU of slope .2

Without pairs z has the prior, N(0, 1): m = 0 and l = 0.

A sequence is several texts, each with its end token: for each pair the chosen and the rejected text with their prompts,
then the text that is scored. Each is read alone, equal ones once. The language model is frozen. From its states their
mean over the first texts of the training is taken off (`center`), and learned on: without it hardly anything is.

Differs: what no pair gives is not defined in the release; the prior is of this package, and so is the center.

K pairs, D width of a state, Z numbers of z, R texts.
"""

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from posttrain.errors import UserError
from posttrain.errors.foreign import file_in, guard, shown
from posttrain.policies import Body, Packed
from posttrain.policies._attention import first_rows, pad_rows
from posttrain.policies.folder import open_weights, stored_shapes
from posttrain.signals import SCORE, SCORES, STATE, Signal

LATENT: Final = "latent_head.safetensors"
"""Its file in a model's folder."""
HIDDEN: Final = 128
"""Width of hidden layers (512 in the release)."""
BOUND: Final = 1.0
"""Of mean and log-variance: standard deviations are from .61 to 1.65."""
SLOPE: Final = 0.2


class Latent(nn.Module):
    """Encoder of pairs and decoder of rewards."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.center_D = nn.Parameter(torch.zeros(inputs))
        self.pair, self.pair_out = _linear(2 * inputs, HIDDEN), _linear(HIDDEN, HIDDEN)
        self.query, self.key, self.value = (_linear(HIDDEN, HIDDEN) for _ in range(3))
        self.mean, self.log_variance = _linear(HIDDEN, size), _linear(HIDDEN, size)
        self.first, self.second, self.last = (
            _linear(inputs + size, HIDDEN),
            _linear(HIDDEN, HIDDEN),
            _linear(HIDDEN, 1),
        )
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for layer in self.children():
                assert isinstance(layer, nn.Linear), "all are linear layers"
                drawn = torch.randn(layer.weight.shape, generator=generator)
                layer.weight.copy_(drawn * layer.in_features**-0.5)
                layer.bias.zero_()

    @torch.no_grad()
    def center(self, state_RD: Tensor) -> None:
        """Take the mean of these states off all states, at first: it is learned from then on."""
        self.center_D.copy_(state_RD.mean(0))

    def encode(self, chosen_KD: Tensor, rejected_KD: Tensor) -> tuple[Tensor, Tensor]:
        """[Z] mean and log-variance of z, given the states of pairs, whose order does not matter; also of several users
        at once, [U, K, D].
        """
        if not chosen_KD.shape[-2]:
            zero_Z = self.mean.weight.new_zeros(*chosen_KD.shape[:-2], self.size)
            return zero_Z, zero_Z
        pair_K2D = torch.cat([chosen_KD - self.center_D, rejected_KD - self.center_D], -1).to(self.mean.weight.dtype)
        item_KH = self.pair_out(leaky_relu(self.pair(pair_K2D), SLOPE))
        weight_KK = (self.query(item_KH) @ self.key(item_KH).mT * HIDDEN**-0.5).softmax(-1)
        mean_H = (weight_KK @ self.value(item_KH)).mean(-2)
        return self.mean(mean_H).clamp(-BOUND, BOUND), self.log_variance(mean_H).clamp(-BOUND, BOUND)

    def decode(self, state_RD: Tensor, z_RZ: Tensor) -> Tensor:
        """[R] rewards of texts, each the same beside any others."""
        x_RH = pad_rows(torch.cat([(state_RD - self.center_D).to(z_RZ.dtype), z_RZ], -1))
        for layer in (self.first, self.second):
            x_RH = leaky_relu(layer(x_RH), SLOPE)
        return first_rows((x_RH * self.last.weight[0]).sum(-1), len(z_RZ)) + self.last.bias


def latent_signals(
    head: Latent,
    body: Body,
    ends: Collection[int],
    packed: Packed,
    positions_T: Tensor,
    needs: frozenset[Signal],
) -> dict[Signal, Tensor]:
    """Signals of tokens of the last text of each sequence: the score at the mean of z, and if needed the state ([T, D])
    and score, mean and log-variance ([T, 1 + 2 Z]). Raises `UserError` for an even number of texts.
    """
    if packed.vectors_LD is not None:
        raise UserError("a reward model with a latent reads text only, and these texts have vectors")
    if packed.after is not None:
        packed, place_L = packed.alone()
        positions_T = place_L[positions_T]
    rows = [_texts(packed.token_ids_L[a:b].tolist(), ends) for a, b in pairwise(packed.starts)]
    before = {text: number for number, text in enumerate(dict.fromkeys(text for row in rows for text in row[:-1]))}
    with torch.no_grad():
        last_SD = body.hidden(_packed([*before], packed))[_ends([*before])] if before else None
    inferred = []
    for row in rows:
        place = [before[text] for text in row[:-1]]
        last_KD = head.mean.weight.new_zeros(0, body.width) if last_SD is None else last_SD[place]
        inferred.append(torch.cat(head.encode(last_KD[0::2], last_KD[1::2])))
    scored = _packed([row[-1] for row in rows], packed)
    sequence_T = torch.searchsorted(
        torch.tensor(packed.starts[1:-1], device=positions_T.device), positions_T, right=True
    )
    moved_N = torch.tensor(scored.starts[1:]) - torch.tensor(packed.starts[1:])
    state_TD = body.hidden(scored).index_select(0, positions_T + moved_N.to(positions_T.device)[sequence_T])
    inferred_TZ = torch.stack(inferred)[sequence_T]
    score_T = head.decode(state_TD, inferred_TZ[:, : head.size])
    signals = {SCORE: score_T} | ({STATE: state_TD} if STATE in needs else {})
    return signals | ({SCORES: torch.cat([score_T[:, None], inferred_TZ], 1)} if SCORES in needs else {})


def _packed(texts: Sequence[tuple[int, ...]], like: Packed) -> Packed:
    """Texts laid end to end."""
    ids_L = torch.tensor([i for text in texts for i in text], dtype=torch.int64, device=like.token_ids_L.device)
    return Packed(token_ids_L=ids_L, starts=(0, *accumulate(map(len, texts))))


def _ends(texts: Sequence[tuple[int, ...]]) -> list[int]:
    """Where the last token of each text is."""
    return [end - 1 for end in accumulate(map(len, texts))]


def _texts(token_ids: list[int], ends: Collection[int]) -> list[tuple[int, ...]]:
    """The texts of a sequence. Raises `UserError` for an even number of them."""
    cuts = [i + 1 for i, token_id in enumerate(token_ids[:-1]) if token_id in ends]
    if len(cuts) % 2:
        raise UserError(
            f"{len(cuts)} texts stand before one that is scored by a user's pairs, where there are two for each pair, "
            "with an end token each"
        )
    return [tuple(token_ids[a:b]) for a, b in pairwise((0, *cuts, len(token_ids)))]


def drawn(mean_Z: Tensor, log_variance_Z: Tensor, normal_Z: Tensor) -> Tensor:
    """[..., Z] a draw of z, brought to the length sqrt(Z), as in training only."""
    z = mean_Z + (0.5 * log_variance_Z).exp() * normal_Z
    scale: Tensor = z.shape[-1] ** 0.5 / z.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    return z * scale


def divergence(mean_Z: Tensor, log_variance_Z: Tensor) -> Tensor:
    """[...] KL of N(m, exp(l)) from N(0, 1): half of the sum of m^2 + e^l - 1 - l."""
    return 0.5 * (mean_Z.square() + log_variance_Z.exp() - 1.0 - log_variance_Z).sum(-1)


def query_value(variance_SZ: Tensor) -> Tensor:
    """What the answers to a set of pairs are expected to tell, from the variances of z under S ways to answer.

    log(2 pi mean of summed variances) - mean of summed logarithms of 2 pi variance, as in the release: a stand-in for
    the information gain, from variances alone.
    """
    whole = 2.0 * torch.pi
    value: Tensor = (whole * variance_SZ.sum(-1).mean()).log() - (whole * variance_SZ).log().sum(-1).mean()
    return value


def read_latent(path: Path, inputs: int, size: int) -> Latent:
    """The head that was saved with a model, or a new one. Raises `UserError` for one of other sizes."""
    head = Latent(inputs, size)
    if not path.is_file():
        return head
    stored, wanted = stored_shapes(path), {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    if stored != wanted:
        raise UserError(f"the head '{path}' has the tensors {shown(stored)}, and this model needs {wanted}")
    with open_weights(file_in(path.parent, path.name)) as file, guard(f"the head '{path}' is damaged"):
        head.load_state_dict({name: file.get_tensor(name) for name in wanted})
    return head


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer: nn.Linear = nn.Linear(inputs, outputs, device="meta", dtype=torch.float32).to_empty(device="cpu")
    return layer
