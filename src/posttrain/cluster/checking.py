"""What a cluster is and whether a run would find it: nodes, versions, ports that answer from another address."""

import time
from collections.abc import Mapping
from typing import Any

from posttrain.cluster.ray import Ray


def check(address: str) -> dict[str, Any]:
    """Join the Ray at an address, or start one of one's own and end it, and look.

    Raises `UserError` for what a run would be refused for.
    """
    from posttrain.cluster._actors import versions
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
        nodes = [_node(node) for node in there.nodes() if node["Alive"]]
        ended = time.monotonic()
    return {
        "versions": {**versions(), "ray": there.__version__},
        "nodes": nodes,
        "ports": ports,
        "seconds_to_start": ready,
        "seconds_to_end": time.monotonic() - ended,
        "left": [pid for pid in own if pid in marked()],
    }


def _node(found: Mapping[str, Any]) -> dict[str, Any]:
    resources = found["Resources"]
    return {
        "address": found["NodeManagerAddress"],
        "cpus": resources.get("CPU", 0.0),
        "gpus": resources.get("GPU", 0.0),
        "memory_gib": round(resources.get("memory", 0.0) / 2**30, 1),
    }
