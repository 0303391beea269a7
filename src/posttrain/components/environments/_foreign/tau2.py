"""tau2-bench (Barres et al. 2025, arXiv:2506.07982): ``tau2:retail``, ``tau2:airline`` or ``tau2:telecom``.

A task of the domain is drawn by the seed, or named by the field ``task_id``. Its tools are those of the agent and,
where the domain has some and no user is simulated, those of the user. Databases are loaded once in a process, and
copied. A turn without a call is for the user, or ends the episode where none is simulated. The value is 1 where all
that the task is graded by holds: the state of the databases after the task's own actions (``DB``), assertions
(``ENV_ASSERTION``), and facts that the model wrote (``COMMUNICATE``).

Differs: without a simulated user what it wants is shown at once; with one the agent's first turn is its greeting.
Statements in natural language, which a language model grades, are left out.
"""

import copy
import importlib.util
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, cast

from posttrain.components.environments._foreign import Adapter, Seen
from posttrain.components.environments._foreign.tools import Tool, perform
from posttrain.components.environments._foreign.users import User
from posttrain.errors import UserError
from posttrain.grading.turn_calls import CallForm


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The domain of a name."""
    return Tau2(name, cast(CallForm, calls), arguments.get("user"))


@cache
def _loaded(domain: str) -> tuple[Any, dict[str, Any]]:
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


class Tau2(Adapter):
    """One episode."""

    def __init__(self, domain: str, form: CallForm, user: str | None) -> None:
        self._form = form
        self._first, self._tasks = _loaded(domain)
        self._user = {tool.name for tool in self._first.get_user_tools()} if self._first.user_tools else set()
        theirs = {tool.name: self._tool(tool) for tool in (self._first.get_user_tools() if self._user else ())}
        self.tools = {tool.name: self._tool(tool) for tool in self._first.get_tools()} | ({} if user else theirs)
        self.user = User(user, theirs) if user else None
        self.fields = {"task_id": False}

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start a task: the policy of the domain, and what the user wants."""
        name = str(fields.get("task_id") or list(self._tasks)[seed % len(self._tasks)])
        if name not in self._tasks:
            raise UserError(f"tau2 has no task '{name[:60]}'")
        self._task, self._written, self._done = self._tasks[name], "", 0
        self._episode, self._gold = self._begun(), self._begun()
        self._actions = (self._task.evaluation_criteria and self._task.evaluation_criteria.actions) or []
        for action in self._actions:
            with suppress(Exception):  # some actions of the package fail, as it expects
                self._call(self._gold, action.name, action.arguments)
        policy, hidden = self._episode.get_policy(), str(self._task.user_scenario.instructions)
        if self.user is not None:
            self.user.begin(hidden)
            return Seen(text=policy)
        return Seen(text=f"{policy}\n\n{hidden}")

    def step(self, action: str) -> Seen:
        """Run the calls of a turn, or have the user read it."""
        self._written += f"\n{action}"
        seen = perform(action, self._form, self.tools)
        return self.user.hear(action) if seen.terminated and self.user is not None else seen

    def reply(self, text: str) -> Seen:
        """Take what the user wrote."""
        assert self.user is not None, "the user writes when it is requested"
        return self.user.answer(text)

    def value(self) -> float:
        """Whether all holds that is graded."""
        criteria = self._task.evaluation_criteria
        if criteria is None:
            return 1.0
        graded = {str(getattr(basis, "value", basis)) for basis in criteria.reward_basis}
        same = all(getattr(self._episode, f)() == getattr(self._gold, f)() for f in ("get_db_hash", "get_user_db_hash"))
        kept = all(
            self._episode.run_env_assertion(a, raise_assertion_error=False) for a in criteria.env_assertions or ()
        )
        text = self._written.lower().replace(",", "")
        stated = all(fact.lower().replace(",", "") in text for fact in criteria.communicate_info or ())
        holds = {"DB": same, "ENV_ASSERTION": kept, "COMMUNICATE": stated}
        return float(all(holds.get(basis, True) for basis in graded))

    def solution(self) -> str | None:
        """The task's own actions, then what is to be communicated."""
        self._done += 1
        if self._done > len(self._actions):
            return ", ".join(self._task.evaluation_criteria.communicate_info or ("done",))
        action = self._actions[self._done - 1]
        return f"<tool_call>{json.dumps({'name': action.name, 'arguments': action.arguments})}</tool_call>"

    def _begun(self) -> Any:
        episode, state = copy.deepcopy(self._first), self._task.initial_state
        episode.set_state(state and state.initialization_data, state and state.initialization_actions, [])
        return episode

    def _call(self, episode: Any, name: str, arguments: Mapping[str, Any]) -> Any:
        requestor = "user" if name in self._user else "assistant"
        try:
            return episode.to_json_str(episode.make_tool_call(name, requestor=requestor, **arguments))
        finally:
            episode.sync_tools()

    def _tool(self, tool: Any) -> Tool:
        schema = tool.openai_schema["function"]
        parameters = tuple(schema["parameters"].get("properties", {}))
        return Tool(
            name=tool.name,
            schema=schema,
            call=lambda arguments, texts: self._call(self._episode, tool.name, arguments),
            parameters=parameters,
        )
