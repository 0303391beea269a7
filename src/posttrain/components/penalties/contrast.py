"""Contrast: draws correct rollouts to the demonstrations of their tasks, among all rollouts of an update.

Source: CARFT, Zhu et al. 2025, arXiv:2508.15868, and its released code (v4 and v10). The embedding z of a rollout is
sum_t softmax(v)_t e_t over its tokens, with e and v of the policy's projection; that of the demonstration, z_shown, is
computed when rollouts are sampled and gets no gradient. For each correct rollout i

    positive_i = -log( exp(min(cos(z_shown_i, z_i), 0.9) / tau) / sum_j exp(cos(z_shown_i, z_j) / tau) )

over all rollouts j of the update, its own included; the mean over correct rollouts is taken. With `negatives`, each
incorrect rollout that has tokens in common with its demonstration gives

    negative_i = -log( exp(min(cos(z1_i, z2_i), 0.9) / tau) / sum over z of exp(cos(z2_i, z) / tau) )

where z1 is the embedding of what only the demonstration has, z2 of what the rollout has in common with it, z3 of what
only the rollout has, and z runs over the z2 and z3 of all rollouts; the term is then half the sum of both means.

With ``form: released`` it is computed as the release does, whose mask of rows is broadcast: where one row counts, the
sum over all rows is taken, correct or not; and what is gathered from other devices has no gradient: in the denominators
only z2 of the negative term has one. There the pull ends at a cosine of 0.9.

Each term is the same for all tokens of a rollout, times rollouts over rollouts that count: with a reducer that counts
sequences alike it is the mean above.
"""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import EMBEDDING, IN_SHOWN, SCORE, SHOWN, SHOWN_ONLY, Signal
from posttrain.types import PerToken, Tokens

if TYPE_CHECKING:
    import torch


@frozen
class Contrast(Penalty):
    """A contrastive loss of embeddings of rollouts and demonstrations."""

    whole_batch: ClassVar[bool] = True

    coefficient: NonNegativeFloat = 0.1
    """Weight beside the loss of the policy (0.1; 0 to 1 in the paper)."""
    temperature: PositiveFloat = 0.2
    """tau (0.2)."""
    limit: float = 0.9
    """Cosine in the numerator above which there is no further pull (0.9)."""
    negatives: bool = False
    """Whether incorrect rollouts are contrasted too, by the parts that they share with the demonstration."""
    form: Literal["rows", "released"] = "rows"
    """``rows`` is the formula; ``released`` what the release computes."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Embeddings and their weights, and those of the demonstration."""
        own = frozenset({EMBEDDING, SCORE, SHOWN})
        return own | {SHOWN_ONLY, IN_SHOWN} if self.negatives else own

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] the term; metrics are the cosines of correct and incorrect rollouts with their demonstrations."""
        import torch

        shown_NE = tokens.last(tokens[SHOWN])
        known_N = ~shown_NE.isnan().any(-1)
        right_N = (tokens.solved_N > 0) & known_N
        own_NE = pooled(tokens, torch.ones_like(tokens.logp_T, dtype=torch.bool))
        shown_NE = shown_NE.nan_to_num()
        cosine_N = torch.nn.functional.cosine_similarity(shown_NE, own_NE, dim=-1)
        all_NE = own_NE.detach() if self.form == "released" else own_NE
        loss_N = self._loss(cosine_N, cosines(shown_NE, all_NE))
        term_N = self._mean(loss_N, right_N)
        if self.negatives:
            term_N = 0.5 * (term_N + self._negative(tokens, ~right_N & known_N))
        agreed_N = cosine_N.detach()
        return PerToken(
            loss_T=self.coefficient * term_N[tokens.sequence_T],
            metrics={"cosine_right": agreed_N[right_N], "cosine_wrong": agreed_N[~right_N & known_N]},
        )

    def _negative(self, tokens: Tokens, wrong_N: "torch.Tensor") -> "torch.Tensor":
        """[N] the term of incorrect rollouts."""
        import torch

        common_T = tokens[IN_SHOWN] > 0
        shared_NE, own_NE = pooled(tokens, common_T), pooled(tokens, ~common_T)
        shown_NE = tokens.last(tokens[SHOWN_ONLY])
        some_N, others_N = (tokens.sequence_sum(kept_T.to(shown_NE.dtype)) > 0 for kept_T in (common_T, ~common_T))
        counted_N = wrong_N & some_N & ~shown_NE.isnan().any(-1)
        cosine_N = torch.nn.functional.cosine_similarity(shown_NE.nan_to_num(), shared_NE, dim=-1)
        other_NE = own_NE.detach() if self.form == "released" else own_NE
        among_NM = torch.cat([cosines(shared_NE, shared_NE), cosines(shared_NE, other_NE)], 1)
        there_M = torch.cat([some_N, others_N])
        loss_N = self._loss(cosine_N, among_NM.masked_fill(~there_M, -torch.inf))
        return self._mean(loss_N.where(some_N, torch.zeros_like(loss_N)), counted_N)

    def _loss(self, cosine_N: "torch.Tensor", among_NM: "torch.Tensor") -> "torch.Tensor":
        """[N] minus log of the exponential of a cosine over the sum of those of all candidates."""
        return (among_NM / self.temperature).logsumexp(-1) - cosine_N.clamp(max=self.limit) / self.temperature

    def _mean(self, loss_N: "torch.Tensor", counted_N: "torch.Tensor") -> "torch.Tensor":
        """[N] numbers whose mean is that of the losses of the rollouts that count."""
        count = counted_N.sum()
        if self.form == "released":
            return loss_N * (count > 0) * len(loss_N)
        return (loss_N * counted_N) * (len(loss_N) / count.clamp(min=1))


def pooled(tokens: Tokens, kept_T: "torch.Tensor") -> "torch.Tensor":
    """[N, E] embedding of the tokens of each sequence that are kept; 0 where there are none."""
    embedding_TE, score_T = tokens[EMBEDDING], tokens[SCORE]
    score_T = score_T.masked_fill(~kept_T, -float("inf"))
    most_N = score_T.new_full((len(tokens.length_N),), -float("inf"))
    most_N = most_N.scatter_reduce(0, tokens.sequence_T, score_T.detach(), "amax").clamp(min=-1e30)
    weight_T = (score_T - most_N[tokens.sequence_T]).exp()
    total_N = tokens.sequence_sum(weight_T)
    weight_T = weight_T / total_N.where(total_N > 0, total_N.new_ones(()))[tokens.sequence_T]
    empty_NE = embedding_TE.new_zeros((len(tokens.length_N), embedding_TE.shape[1]))
    return empty_NE.index_add(0, tokens.sequence_T, weight_T[:, None] * embedding_TE)


def cosines(a_NE: "torch.Tensor", b_ME: "torch.Tensor") -> "torch.Tensor":
    """[N, M] cosine of each with each."""
    import torch

    a_NE, b_ME = (torch.nn.functional.normalize(x, dim=-1, eps=1e-8) for x in (a_NE, b_ME))
    return a_NE @ b_ME.T
