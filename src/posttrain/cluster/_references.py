"""Objects on their way to another process, without the models that they mention: those are there already.

A loss is code with settings, and may hold policies (a divergence's other models, what a stage changes inside a pass).
They are named in what is sent, and the process that receives it puts its own copies in their places.
"""

import io
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from posttrain.policies import Policy

_registering = threading.Lock()
"""Modules are registered for all threads."""


def dumps(value: Any, name_of: Callable[[Policy], str]) -> bytes:
    """`value` as bytes; a policy is replaced by its name."""
    from ray import cloudpickle as untyped

    cloudpickle: Any = untyped

    def persistent_id(pickler: Any, found: Any) -> str | None:
        return name_of(found) if isinstance(found, Policy) else None

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
        """Finds policies by their names."""

        def persistent_load(self, name: Any) -> Policy:
            return policies[name]

    return Unpickler(io.BytesIO(content)).load()
