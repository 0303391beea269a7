"""The per-token loss: an objective with its correction and penalties."""

from collections.abc import Callable, Mapping

from posttrain.components.corrections import Correction
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.types import PerToken, Tokens


def combine(
    objective: Objective, penalties: Mapping[str, Penalty], correction: Correction | None
) -> Callable[[Tokens], PerToken]:
    """One per-token loss: the objective, corrected, plus every penalty that acts in the loss."""

    def per_token(tokens: Tokens) -> PerToken:
        result = objective(tokens)
        loss_T, metrics = result.loss_T, dict(result.metrics)
        if correction is not None:
            factor_T = correction(tokens)
            loss_T, metrics["correction"] = loss_T * factor_T, factor_T
        for name, penalty in penalties.items():
            term = penalty.in_loss(tokens)
            if term is not None:
                loss_T = loss_T + term.loss_T
                metrics |= {f"{name}/{metric}": values for metric, values in term.metrics.items()}
        return PerToken(loss_T=loss_T, metrics=metrics)

    return per_token
