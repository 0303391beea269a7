"""Objects on their way to another process, without the models that they mention: those are there already.

A loss is code with settings, and may hold policies (a divergence's other models, what a stage changes inside a pass).
They are named in what is sent, and the process that receives it puts its own copies in their places. So is a part of
the model that learns (a head that a stage applies itself): a copy of it would get gradients that nobody reads.
"""

import io
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from posttrain.policies import Policy

_registering = threading.Lock()
"""Modules are registered for all threads."""


def dumps(value: Any, name_of: Callable[[Policy], str], learns: Policy | None = None) -> bytes:
    """`value` as bytes; a policy is replaced by its name, and a module of `learns` by that and its path.

    Raises `TypeError` for weights that are learned and in neither.
    """
    from ray import cloudpickle as untyped

    cloudpickle: Any = untyped
    paths = {} if learns is None else {id(module): path for path, module in learns.named_modules()}

    def persistent_id(pickler: Any, found: Any) -> str | tuple[str, str] | None:
        if isinstance(found, Policy):
            return name_of(found)
        if not _is_learned(found):
            return None
        if learns is None or id(found) not in paths:
            raise TypeError(
                f"it holds weights that are learned and are no part of the model that learns: {type(found)}"
            )
        return name_of(learns), paths[id(found)]

    pickler = type("Pickler", (cloudpickle.Pickler,), {"persistent_id": persistent_id})
    into = io.BytesIO()
    with _registering:
        own = [module for module in list(sys.modules.values()) if "__source__" in getattr(module, "__dict__", {})]
        for module in own:  # a file of the user's, which the other process cannot import
            cloudpickle.register_pickle_by_value(module)
        try:
            pickler(into, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        finally:
            for module in own:
                cloudpickle.unregister_pickle_by_value(module)
    return into.getvalue()


def loads(content: bytes, policies: Mapping[str, Policy]) -> Any:
    """What `dumps` was given, with the policies that are here."""

    class Unpickler(pickle.Unpickler):
        """Finds policies by their names, and their parts by paths."""

        def persistent_load(self, name: Any) -> nn.Module:
            return policies[name] if isinstance(name, str) else policies[name[0]].get_submodule(name[1])

    return Unpickler(io.BytesIO(content)).load()


def _is_learned(found: Any) -> bool:
    """Whether it is, or has, weights with a gradient."""
    if isinstance(found, nn.Module):
        return any(weight.requires_grad for weight in found.parameters())
    return isinstance(found, Tensor) and found.requires_grad
