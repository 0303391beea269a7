"""The native engine: samples in this process with the weights that are being trained.

Sequences are decoded together, one token a step, with their keys and values cached; a finished one leaves its slot to
the next in line (continuous batching, Yu et al. 2022, Orca, OSDI '22, section 4.1).
"""

from typing import TYPE_CHECKING

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.engines import Engine, Server

if TYPE_CHECKING:
    from posttrain.policies import Policy


@frozen
class Native(Engine):
    """The engine of a laptop and of one GPU."""

    slots: PositiveInt = 256
    """Most sequences decoded at a time. Memory grows with what they hold; completions do not depend on it."""
    prefill_tokens: PositiveInt = 8192
    """Most tokens in one pass over prompts, or over sequences whose log-probabilities are asked for. A longer prompt
    takes several passes."""

    def serve(self, policy: "Policy", seed: int) -> Server:
        """Start sampling with the live weights of a policy: chains of a flow, tokens of any other."""
        from posttrain.policies.flow import FlowPolicy

        if isinstance(policy, FlowPolicy):
            from posttrain.engines._chains import ChainServer

            return ChainServer(policy, seed)
        from posttrain.engines._continuous import ContinuousServer

        return ContinuousServer(policy, seed, slots=self.slots, prefill_tokens=self.prefill_tokens)
