"""The native engine: samples in this process with the weights in training.

Sequences are decoded together, one token per step, with their keys and values cached. A finished one leaves its slot to
the next request (continuous batching, Yu et al. 2022, Orca, OSDI '22, section 4.1).
"""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.engines import Engine, Server, TokenServer
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.policies import Policy


@frozen
class Native(Engine):
    """The engine of a laptop and of one GPU."""

    slots: PositiveInt = 256
    """Most sequences decoded at a time. Memory grows with their tokens; completions do not depend on it."""
    prefill_tokens: PositiveInt = 8192
    """Most tokens in one pass over prompts, or over sequences whose log-probabilities are requested. A longer prompt
    takes several passes.
    """

    prefix_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 1 << 28
    """Most bytes of keys and values that stay of sequences that have ended, for prompts that begin with the same
    tokens, such as the next turn of a conversation; those that were not used for longest go first. 0: none stay. No
    completion depends on it.
    """

    def serve(self, policy: "Policy", seed: int) -> Server:
        """Serve a policy with its live weights: chains of a flow, tokens of any other."""
        from posttrain.policies.flow import FlowPolicy

        if isinstance(policy, FlowPolicy):
            from posttrain.engines._chains import ChainServer

            return ChainServer(policy, seed)
        from posttrain.engines._continuous import ContinuousServer
        from posttrain.policies.latent_steps import LatentPolicy

        if isinstance(policy, LatentPolicy):
            from posttrain.engines._latents import LatentServer

            return LatentServer(policy, seed, slots=self.slots, prefill_tokens=self.prefill_tokens)
        return ContinuousServer(
            policy, seed, slots=self.slots, prefill_tokens=self.prefill_tokens, prefix_bytes=self.prefix_bytes
        )

    def serve_text(self, policy: "Policy", seed: int) -> TokenServer:
        """As `serve`, of a model of text. Raises `UserError` for another one."""
        from posttrain.engines._continuous import ContinuousServer

        server = self.serve(policy, seed)
        if not isinstance(server, ContinuousServer):
            raise UserError(f"the model in the role '{policy.role}' writes no text, so no one can talk to it")
        return server
