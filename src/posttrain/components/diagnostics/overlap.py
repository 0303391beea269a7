"""Overlap of two updates of one model: the share of weights changed by one run that another run changed too.

Source: Mukherjee et al. 2025, arXiv:2505.11711, section 6: |I1 and I2| / |I1| and / |I2| for the sets I of weights that
two runs from one model changed, compared with chance: the density of the other set.

Differs: the definition is from the paper's text, of which there is no code; a weight is in a set if its change in
bfloat16 is not zero, as in its masks (`dtype` and `tolerance` are settings).
"""

from typing import ClassVar, Final, Literal

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject

ROWS: Final = (5,)


@frozen
class Overlap(Diagnostic):
    """Shares of two sets of changed weights, compared with chance."""

    subjects: ClassVar[tuple[str, ...]] = ("before", "after", "other")

    tolerance: NonNegativeFloat = 0.0
    """Largest change of a weight that counts as none."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Type that the models are rounded to before they are compared."""

    def examine(self, *subjects: Subject) -> Finding:
        """Compare both trained models with the model before."""
        import torch

        from posttrain.components.diagnostics._updates import difference, updates

        before, after, other = subjects
        dtype = getattr(torch, self.dtype)
        both = first = second = entries = 0
        pairs = zip(updates(before, after), updates(before, other), strict=True)
        for (_, old, new), (_, _, newer) in pairs:
            one, two = (difference(old, x, dtype).abs() > self.tolerance for x in (new, newer))
            both, first, second = both + int((one & two).sum()), first + int(one.sum()), second + int(two.sum())
            entries += old.numel()
        values = {
            "parameters": entries,
            "density": [first / entries, second / entries],
            "overlap": [both / first if first else None, both / second if second else None],
            "chance": [second / entries, first / entries],
            "times_chance": both * entries / (first * second) if first and second else None,
        }
        if not (first and second):
            empty = after if not first else other
            return Finding(values=values, lines=[f"{empty.name} changed no weight, so that an overlap is not defined"])
        lines = [
            f"{name} changed {own / entries:.2%} of the weights; of these {of.name} changed {both / own:.2%} too, "
            f"where {chance / entries:.2%} would be chance"
            for name, of, own, chance in ((after.name, other, first, second), (other.name, after, second, first))
        ]
        return Finding(values=values, lines=[*lines, f"{values['times_chance']:.2f} times as many as by chance"])
