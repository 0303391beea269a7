"""Surgery: add the direction of a behaviour to the gate rows that point most against it.

Source: Wang et al. 2024, "Model surgery", arXiv:2407.08770, and its release. A linear probe of two classes is fitted to
the mean last hidden state of each text: cross-entropy, Adam with rate 1e-4, batches of 16, 20 epochs, a tenth of the
texts held out, the model frozen. Its direction p is the row of the class to avoid, neither normalised nor reduced by
the other row; the bias is left aside. Every row w of every MLP's gate projection has the score -cos(w, p). In one
ranking over all layers the first ones (16,384 of 352,256 in the release, 4.65 %) become w + alpha p: neurons that were
closed on such states open there, while states with p.h near 0 are hardly affected.

The abstract's "shifted towards the probe" is this. With ``unit: row`` alpha counts mean norms of a row, because the
norm of p depends on how long the probe was trained; the report has alpha |p| over the mean norm either way. A zero
probe has the cosine 0 with every row and changes nothing. A model without a gate is edited in its up-projection, which
nobody has validated.

    posttrain edit MODEL --away texts.jsonl --sweep 2:-2:-1    # columns: text, label (1: avoid)

Differs: the release's 16,384 rows are a share here. Its start-up check is inverted; the intention is followed.

Measured here, five seeds (docs/experiments/model_surgery.py): a new model of 4 layers that writes reviews, 48.9 % of
which blame; probe accuracy 1, 4.6 % of the rows, 200 samples a seed. Steps of 4 and 6 mean norms change the share of
blame by -9.4 points [-21.5, +2.7] and -13.6 [-25.9, -1.3]; the perplexity of blame rises from 5.7 to 11.2 and 24.5,
that of praise from 5.7 to 5.8 and 7.2. Controls of the same size and sign, at 6: aligned rows +4.6 [-0.8, +10.0],
random rows -0.7 [-5.3, +3.9], a random direction -8.4 [-20.5, +3.7], all with perplexities of blame up to 6.1. With the
opposite sign, at -4, the edit gives -8.0 [-24.5, +8.5]: by samples it does not stand out from a random direction, by
perplexity it does. Steering by -1 in every layer gives -5.4 [-7.7, -3.1] and leaves the perplexities.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.edits import Edit, Plan
from posttrain.errors import UserError

if TYPE_CHECKING:
    import torch

ROWS: Final = (25,)
HELD_OUT: Final = 10
"""One in this many texts is held out from the probe."""
BATCH: Final = 16


@frozen
class Surgery(Edit):
    """w + alpha p for the rows that point most against p."""

    alpha: float = 1.0
    """Strength; negative for the opposite sign. The release's default is 1 (in units of the probe)."""
    unit: Literal["row", "probe"] = "row"
    """Whether alpha counts mean norms of a row, or multiples of p as in the release."""
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.0465
    """Share of all rows that is changed, at least one."""
    ranking: Literal["opposed", "aligned", "random"] = "opposed"
    """Which rows: those that point most against p, most along it, or random ones."""
    direction: Literal["probe", "random"] = "probe"
    """What is added: p, or a random direction of its norm."""
    lr: PositiveFloat = 1e-4
    """Rate of the probe's Adam."""
    epochs: PositiveInt = 20
    """Passes of the probe over the texts."""
    seed: NonNegativeInt = 0
    """Seed of the held-out texts, the probe's first weights and order, and of random rows and directions."""

    def at(self, strength: float) -> Self:
        """With another alpha."""
        return replace(self, alpha=strength)

    @property
    def controls(self) -> Mapping[str, Self]:
        """Edits of as many rows by a step of the same norm."""
        return {
            "aligned rows": replace(self, ranking="aligned"),
            "random rows": replace(self, ranking="random"),
            "random direction": replace(self, direction="random"),
        }

    def plan(self, states_ND: "torch.Tensor", label_N: "torch.Tensor", matrices: "Mapping[str, torch.Tensor]") -> Plan:
        """Fit the probe, rank the rows."""
        import torch

        probe_2D, report = self.probe(states_ND, label_N)
        direction_D = probe_2D[1]
        norms = torch.cat([matrix.float().norm(dim=1) for matrix in matrices.values()])
        size = float(direction_D.norm())
        scores = torch.cat([_cosines(matrix.float(), direction_D) for matrix in matrices.values()])
        count = max(1, round(self.share * len(scores)))
        generator = torch.Generator().manual_seed(self.seed)
        if self.ranking == "random":
            chosen = torch.randperm(len(scores), generator=generator)[:count]
        else:
            chosen = scores.argsort(descending=self.ranking == "aligned", stable=True)[:count]
        if self.direction == "random":
            drawn_D = torch.randn(direction_D.shape, generator=generator)
            direction_D = drawn_D * (size / float(drawn_D.norm()))
        scale = float(norms.mean()) / size if self.unit == "row" and size > 0 else 1.0
        step_D = self.alpha * scale * direction_D
        rows, first = {}, 0
        for name, matrix in matrices.items():
            own = chosen[(chosen >= first) & (chosen < first + len(matrix))] - first
            rows[name] = own.sort().values
            first += len(matrix)
        report |= {
            "rows": count,
            "of": len(scores),
            "step_over_row": float(step_D.norm()) / max(float(norms.mean()), 1e-30),
            "mean_cosine": float(scores[chosen].mean()),
            "by_matrix": {name: len(own) for name, own in rows.items()},
        }
        return Plan(rows=rows, step_D=step_D, report=report)

    def probe(self, states_ND: "torch.Tensor", label_N: "torch.Tensor") -> "tuple[torch.Tensor, dict[str, Any]]":
        """[2, D] the weights of the probe, and its accuracy on the held-out texts and on the others.

        Raises `UserError` where the texts are of one class.
        """
        import torch

        count, ones = len(label_N), int(label_N.sum())
        if count < HELD_OUT or not 0 < ones < count:
            raise UserError(
                f"there are {count} texts, {ones} of them with label 1; a probe needs at least {HELD_OUT}, of both "
                "labels: 1 for the behaviour to avoid, 0 for other texts"
            )
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(count, generator=generator)
        held, own = order[: count // HELD_OUT], order[count // HELD_OUT :]
        bound = states_ND.shape[1] ** -0.5
        weight = ((torch.rand(2, states_ND.shape[1], generator=generator) * 2 - 1) * bound).requires_grad_(True)
        bias = torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.Adam([weight, bias], lr=self.lr)
        states = states_ND.float()
        with torch.enable_grad():
            for _ in range(self.epochs):
                shuffled = own[torch.randperm(len(own), generator=generator)]
                for part in shuffled.split(BATCH):  # type: ignore[no-untyped-call]
                    logits = states[part] @ weight.T + bias
                    loss = torch.nn.functional.cross_entropy(logits, label_N[part])
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()

        def right(part: "torch.Tensor") -> float:
            return float(((states[part] @ weight.T + bias).argmax(1) == label_N[part]).float().mean())

        found = {"probe_accuracy": right(held), "probe_accuracy_trained": right(own), "held_out": len(held)}
        return weight.detach(), found


def _cosines(matrix_RD: "torch.Tensor", direction_D: "torch.Tensor") -> "torch.Tensor":
    """[R] cosine of each row with a direction; norms are clamped at 1e-8, so that of a zero vector is 0."""
    import torch

    return torch.nn.functional.cosine_similarity(matrix_RD, direction_D[None], dim=1, eps=1e-8)
