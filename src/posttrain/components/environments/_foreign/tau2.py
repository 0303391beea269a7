"""tau2-bench (Barres et al. 2025, arXiv:2506.07982): ``tau2:retail``, ``tau2:airline`` or ``tau2:telecom``.

A task of the domain is drawn by the seed, or named by the field ``task_id``. Its tools are those of the agent and,
where the domain has some and no user is simulated, those of the user. Databases are loaded once in a process, and
copied. A turn without a call is for the user, or ends the episode where none is simulated. The value is 1 where all
that the task is graded by holds: the state of the databases after the task's own actions (``DB``), assertions
(``ENV_ASSERTION``), and facts that the model wrote (``COMMUNICATE``).

Differs: without a simulated user what it wants is shown at once; with one the agent's first turn is its greeting.
Statements in natural language, which a language model grades, are left out.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from posttrain.components.environments._foreign import Adapter, Seen
from posttrain.components.environments._foreign.tau2_package import begun, called, holds, loaded
from posttrain.components.environments._foreign.tools import Tool, hermes, of_schema, perform
from posttrain.components.environments._foreign.users import User
from posttrain.errors import UserError
from posttrain.grading.turn_calls import CallForm


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The domain of a name."""
    return Tau2(name, cast(CallForm, calls), arguments.get("user"))


class Tau2(Adapter):
    """One episode."""

    def __init__(self, domain: str, form: CallForm, user: str | None) -> None:
        self._form = form
        self._first, self._tasks = loaded(domain)
        self._user = {tool.name for tool in self._first.get_user_tools()} if self._first.user_tools else set()
        theirs = self._tools(self._first.get_user_tools() if self._user else ())
        self.tools = self._tools(self._first.get_tools()) | ({} if user else theirs)
        self.user = User(user, theirs) if user else None
        self.fields = {"task_id": False}

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start a task: the policy of the domain, and what the user wants."""
        name = str(fields.get("task_id") or list(self._tasks)[seed % len(self._tasks)])
        if name not in self._tasks:
            raise UserError(f"tau2 has no task '{name[:60]}'")
        self._task, self._written, self._done = self._tasks[name], "", 0
        self._episode, self._gold = begun(self._first, self._task), begun(self._first, self._task)
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
        return float(holds(criteria, self._episode, self._gold, self._written))

    def solution(self) -> str | None:
        """The task's own actions, then what is to be communicated."""
        self._done += 1
        if self._done > len(self._actions):
            return ", ".join(self._task.evaluation_criteria.communicate_info or ("done",))
        action = self._actions[self._done - 1]
        return hermes(action.name, action.arguments)

    def _call(self, episode: Any, name: str, arguments: Mapping[str, Any]) -> Any:
        return called(episode, name, arguments, "user" if name in self._user else "assistant")

    def _tools(self, tools: Any) -> dict[str, Tool]:
        schemas = [tool.openai_schema["function"] for tool in tools]
        return {s["name"]: of_schema(s, lambda name, given: self._call(self._episode, name, given)) for s in schemas}
