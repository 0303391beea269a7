"""Pairs of completions, and what is known of a preference."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from posttrain.errors import UserError

Sides = tuple[float | None, float | None]
"""Numbers of the chosen and the rejected completion of a pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Two completions of one prompt, the first preferred, with what is known of the preference."""

    chosen: str
    rejected: str
    strength: float | None = None
    """How clear the preference is: a number above 0, in the unit of the data."""
    annotator: str | None = None
    """Name of who stated it."""
    user: str | None = None
    """Name of whose taste it is."""
    principle: str | None = None
    """What the two were compared by."""
    reference: str | None = None
    """A completion that both were compared with."""
    aspects: Mapping[str, Sides] = field(default_factory=dict, hash=False)
    """By aspect, the scores of the chosen and of the rejected completion; None for one without a score."""
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of the rule that made the pair: ``margin`` (in units of reward), ``cut`` (the rejected one is a prefix, without
    an end), ``rule``, ..."""

    def __post_init__(self) -> None:
        """Raises `UserError` for a value of another type."""
        strength = self.strength
        if strength is not None and (isinstance(strength, bool) or not isinstance(strength, int | float)):
            raise UserError(f"strength is {strength!r:.60}; it is how clear the preference is, a number above 0")
        if strength is not None and not 0 < strength < float("inf"):
            raise UserError(
                f"strength is {strength!r}; it is how clear the preference is, a number above 0: exchange chosen and "
                "rejected where the label is reversed, and leave ties out"
            )
        for name in ("annotator", "user", "principle", "reference"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise UserError(f"{name} is {value!r:.60}, which is not text")
        object.__setattr__(self, "aspects", {name: _sides(name, value) for name, value in self.aspects.items()})

    def about(self) -> dict[str, Any]:
        """All that is known besides the completions, by name, for rows of data."""
        typed = {name: getattr(self, name) for name in ("strength", "annotator", "user", "principle", "reference")}
        known = {name: value for name, value in typed.items() if value is not None}
        return {**self.fields, **known, **({"aspects": dict(self.aspects)} if self.aspects else {})}


def _sides(name: str, value: Any) -> Sides:
    """The scores of an aspect. Raises `UserError` for anything but two numbers."""
    both = tuple(value) if isinstance(value, list | tuple) else ()
    numbers = [x for x in both if isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < float("inf")]
    if len(both) != 2 or len(numbers) + both.count(None) != 2:
        raise UserError(
            f"the aspect '{name}' is {value!r:.60}; an aspect has the scores of the chosen and of the rejected "
            "completion, [4, 2.5], with null for one without a score"
        )
    return both
