"""What `tau2` calls of its package: the databases of a domain, their tools, and what a task is graded by."""

import copy
import importlib.util
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from posttrain.errors import UserError


@cache
def loaded(domain: str) -> tuple[Any, dict[str, Any]]:
    """The environment of a domain, and its tasks by id."""
    if importlib.util.find_spec("tau2") is None:
        raise ModuleNotFoundError("tau2 is not installed", name="tau2")
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or its import opens a connection
    importlib.import_module("loguru").logger.remove()
    importlib.import_module("tau2")
    try:
        module = importlib.import_module(f"tau2.domains.{domain}.environment")
    except ModuleNotFoundError:
        raise UserError(f"tau2:{domain}: there is no such domain; there are airline, retail and telecom") from None
    return module.get_environment(), {str(task.id): task for task in module.get_tasks()}


def begun(first: Any, task: Any) -> Any:
    """A copy of the databases, in the first state of a task."""
    episode, state = copy.deepcopy(first), task.initial_state
    episode.set_state(state and state.initialization_data, state and state.initialization_actions, [])
    return episode


def called(episode: Any, name: str, arguments: Mapping[str, Any], requestor: str) -> Any:
    """The answer of a tool, as JSON."""
    try:
        return episode.to_json_str(episode.make_tool_call(name, requestor=requestor, **arguments))
    finally:
        episode.sync_tools()


def holds(criteria: Any, episode: Any, gold: Any, written: str) -> bool:
    """Whether all holds that is graded; `gold` is where the task's own actions lead."""
    graded = {str(getattr(basis, "value", basis)) for basis in criteria.reward_basis}
    same = all(getattr(episode, f)() == getattr(gold, f)() for f in ("get_db_hash", "get_user_db_hash"))
    kept = all(episode.run_env_assertion(a, raise_assertion_error=False) for a in criteria.env_assertions or ())
    text = written.lower().replace(",", "")
    stated = all(fact.lower().replace(",", "") in text for fact in criteria.communicate_info or ())
    found = {"DB": same, "ENV_ASSERTION": kept, "COMMUNICATE": stated}
    return all(found.get(basis, True) for basis in graded)
