"""Texts whose states are read: a task's prompt, and its verified answer without any reasoning."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from posttrain.errors import UserError
from posttrain.stages.sft import demonstration
from posttrain.types import Task

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.policies.language_model import LanguageModelPolicy
    from posttrain.training.packing import Example


def answered(policy: "Policy", tasks: Sequence[Task], completion: str) -> "list[Example]":
    """Every task with an answer, of which all tokens but the first count; `completion` has the place ``{answer}``.

    Raises `UserError` where no task has an answer, or a text is too long for the model.
    """
    from posttrain.training.packing import Example

    found = []
    for task in tasks:
        if task.answer is not None:
            ids = demonstration(policy, task, completion.replace("{answer}", task.answer)).token_ids
            count = len(ids) - 1
            places = np.arange(1, count + 1)
            found.append(Example(token_ids=ids, positions=places, columns={}, turn_T=np.zeros(count, np.int64)))
    if not found:
        raise UserError(
            f"none of the {len(tasks)} tasks has an answer, and the texts of this stage are prompts with answers; give "
            "a column named answer"
        )
    return found


def read_layer(policy: "Policy", layer: int | None, place: str) -> "tuple[LanguageModelPolicy, int]":
    """A model whose layers can be read, and the layer, counted from 0: where it is None, that before the middle.

    Raises `UserError` for another model, and for a layer that it does not have.
    """
    from posttrain.policies.decoder import Decoder
    from posttrain.policies.language_model import LanguageModelPolicy
    from posttrain.policies.layers import check_layer, layers_of

    if not isinstance(policy, LanguageModelPolicy) or not isinstance(policy.body, Decoder):
        raise UserError(f"{place}: states of layers are read in models of the native decoder only")
    layer = max(len(layers_of(policy.body)) // 2 - 1, 0) if layer is None else layer
    check_layer(policy.body, layer)
    return policy, layer
