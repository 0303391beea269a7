"""What the turns of a rollout may cost beside their number, and whether the model sees it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.environments import Observation
from posttrain.errors import UserError

Tokens = Annotated[int, Field(ge=1, le=10_000_000)]


@frozen
class Budget:
    """Of a rollout of several turns."""

    free_turns: Annotated[int, Field(ge=0, le=65536)] = 0
    """Invalid turns of a rollout that are not counted toward `max_turns`; all others are."""
    tokens: Tokens | tuple[Tokens, Tokens] | None = None
    """Most tokens of the model's turns in all; of two numbers, each rollout draws its own from the first to the second.
    The turn that reaches it is cut there, and is the last."""
    shown: bool = False
    """Whether each observation ends with what is left, as ``[3 turns, 20 tokens left]``."""

    def check(self) -> None:
        """Raise `UserError` for a range that ends before it begins."""
        if isinstance(self.tokens, tuple) and self.tokens[0] > self.tokens[1]:
            raise UserError(
                f"rollout.budget.tokens is {list(self.tokens)}: the first number may not be above the second"
            )

    def limit(self, draw: Callable[[], float]) -> int | None:
        """Most tokens of a rollout's turns in all."""
        if not isinstance(self.tokens, tuple):
            return self.tokens
        fewest, most = self.tokens
        return fewest + int(draw() * (most - fewest + 1))

    def counted(self, turns: int, invalid: int) -> int:
        """How many of the turns so far are counted."""
        return turns - min(self.free_turns, invalid)

    def added_to(self, observation: Observation, turns: int, tokens: int | None) -> Observation:
        """An observation with what is left, if that is shown."""
        if not self.shown:
            return observation
        left = f"{turns} turns" + ("" if tokens is None else f", {tokens} tokens")
        text = observation.text.rstrip()
        return replace(observation, text=f"{text} [{left} left]".lstrip() + observation.text[len(text) :])
