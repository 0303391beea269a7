"""QK-clip: scales down the query and key weights of heads whose largest attention logit is above a bound.

Source: MuonClip of Kimi K2, arXiv:2507.20534, from technical notes. After each step, for every head h

    S_h = max over pairs of tokens of q . k / sqrt(d)      gamma = min(1, tau / S_h)

and W_q and W_k of the head are multiplied by sqrt(gamma), so that its logits are by gamma. Other heads do not change.
Where several heads share a key, W_q takes all of gamma, so that the others keep theirs. It was made for pre-training
with large learning rates; with norms of queries and keys (Qwen3) it is meaningless, and refused.

Differs: S_h is measured after the update, on the rollouts of the step, so that the bound holds for these exactly; the
authors take it from the forward pass before it. That of latent attention is not here, which no native model has.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.hooks import Hook, RoleState, state_of


@frozen
class QKClip(Hook):
    """Bounds attention logits."""

    role: str = "policy"
    """The model whose weights are scaled; it must be a native decoder without norms of queries and keys."""
    tau: PositiveFloat = 100.0
    """Largest attention logit."""
    every: PositiveInt = 1
    """Measure every N steps."""
    most: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Most rollouts of a step that logits are measured on, the first ones."""

    @property
    def roles(self) -> frozenset[str]:
        """The model."""
        return frozenset({self.role})

    def __call__(self, step: int, states: Mapping[str, RoleState]) -> None:
        """Measure, and scale the heads above the bound."""
        if step % self.every:
            return
        state = state_of(self.role, states)
        state.model.bound_attention([t.token_ids for group in state.groups for t in group][: self.most], self.tau)
