"""Ray's object store, by which models go to processes that do not share this machine's memory."""

from typing import TYPE_CHECKING, Any

from posttrain.cluster._members import Settings
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.policies import Policy


def put(settings: Settings, policy: "Policy", content: Any) -> Any:
    """Bytes of a model, for several processes. Raises `UserError` where they do not fit."""
    import ray

    check_room(settings, policy, len(content))
    return ray.put(content)


def check_room(settings: Settings, policy: "Policy", size: int) -> None:
    """Raise `UserError` for what is larger than the object store: Ray would write it to the disk without a word."""
    limit, how = settings.store_mb << 20, f"set cluster.store_mb={(size >> 20) + 1} or more"
    if settings.address:
        import ray

        there: Any = ray
        own = there.get_runtime_context().get_node_id()
        node = next(node for node in there.nodes() if node["NodeID"] == own)
        limit, how = (
            int(node["Resources"]["object_store_memory"]),
            f"start that Ray with --object-store-memory={size} or more",
        )
    if size > limit:
        raise UserError(
            f"the {policy.called} in the role '{policy.role}' has {size >> 20} MiB, and Ray's object store, by "
            f"which it goes to other processes, {limit >> 20}: the rest would be written to the disk; {how}"
        )
