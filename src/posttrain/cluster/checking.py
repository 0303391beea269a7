"""What a cluster is and whether a run would find it: nodes, versions, ports that answer from another address; and what
sharded learners have in memory.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from posttrain.cluster.ray import Ray

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.types import PerToken, Tokens


def check(address: str) -> dict[str, Any]:
    """Join the Ray at an address, or start one of one's own and end it, and look.

    Raises `UserError` for what a run would be refused for.
    """
    from posttrain.cluster._actors import versions
    from posttrain.cluster._graders import tiers
    from posttrain.cluster._opened import opened
    from posttrain.cluster._ports import answers, listening, own_address
    from posttrain.cluster._processes import marked
    from posttrain.engines.native import Native

    settings = Ray(address=address)
    settings.check("cpu")
    import ray

    there: Any = ray
    began = time.monotonic()
    with opened(settings, Native(), 0) as session:
        ready = time.monotonic() - began
        here = own_address()
        own = [pid for pid, folder in marked().items() if folder == str(session.folder)]
        ports = [
            {"port": port.number, "address": port.address, "process": port.pid, "answers": answers(here, port.number)}
            for port in listening(own)
        ]
        alive = [node for node in there.nodes() if node["Alive"]]
        sandboxes = tiers([node["NodeID"] for node in alive])
        nodes = [{**_node(node), "sandbox": sandboxes[node["NodeID"]]} for node in alive]
        ended = time.monotonic()
    return {
        "versions": {**versions(), "ray": there.__version__},
        "nodes": nodes,
        "ports": ports,
        "seconds_to_start": ready,
        "seconds_to_end": time.monotonic() - ended,
        "left": [pid for pid in own if pid in marked()],
    }


def memory(policy: "Policy", learners: int, address: str = "") -> dict[str, Any]:
    """Bytes that sharded learners have between two steps, measured after one update of a language model by AdamW.

    Of each learner: ``weights``, ``gradients``, ``optimizer`` (moments and masters), and ``whole``, the weights that
    samplers and checkpoints are made from, in the first. ``one`` is a single process.
    """
    import numpy as np

    from posttrain.cluster._opened import opened
    from posttrain.cluster._sharded import ShardedGang
    from posttrain.cluster._weights import tensors_of
    from posttrain.components.reducers import Reducer
    from posttrain.engines.native import Native
    from posttrain.training.learner import Learner, Loss
    from posttrain.training.packing import Example, pack
    from posttrain.training.settings import Learning

    settings = Ray(address=address, learners=learners, sharding="fsdp")
    settings.check("cpu")
    example = Example(token_ids=np.arange(8), positions=np.arange(1, 8), columns={}, turn_T=np.zeros(7, np.int64))
    with opened(settings, Native(), 0) as session:
        learner = Learner(policy, Learning(), seed=0, num_steps=1)
        learner.workers = gang = session.workers(learner)
        assert isinstance(gang, ShardedGang), "there are several learners"
        batch = pack([example], np.ones(1, np.float32), learner.device)
        list(gang.slices(learner, [batch] * learners, Loss(per_token=_likelihood, reducer=Reducer()), 0.0))
        gang.update(learner, gang.norm(learner), 0.0)
        found = gang.bytes(learner)
    whole = sum(tensor.nbytes for tensor in tensors_of(policy))
    one = {name: sum(own[name] for own in found) for name in ("gradients", "optimizer")}
    return {
        "learners": [{**own, "whole": 0 if rank else whole} for rank, own in enumerate(found)],
        "one": {"weights": whole, **one, "whole": 0},
    }


def _likelihood(tokens: "Tokens") -> "PerToken":
    from posttrain.signals import LOGP
    from posttrain.types import PerToken

    return PerToken(loss_T=-tokens[LOGP], metrics={})


def _node(found: Mapping[str, Any]) -> dict[str, Any]:
    resources = found["Resources"]
    return {
        "address": found["NodeManagerAddress"],
        "cpus": resources.get("CPU", 0.0),
        "gpus": resources.get("GPU", 0.0),
        "memory_gib": round(resources.get("memory", 0.0) / 2**30, 1),
    }
