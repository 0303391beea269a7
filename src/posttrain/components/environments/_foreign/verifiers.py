"""Verifiers 0.4 (``verifiers.v1``): ``verifiers:my_taskset``, a taskset that is installed, or lies in the import path.

A task is drawn by the seed, or chosen by the field ``idx``. The program of the taskset's harness, by default ``null``
(a chat with tools, which `uv` starts), requests completions of an endpoint of this episode alone. A request is what the
policy sees, its next one the observation; the program's answers to tools are therefore those of verifiers. The text of
a turn is kept as it was sampled: the endpoint sends it back as the message. The value is the reward of the trace.
Nothing is uploaded: that is done by the command line of verifiers, which is not used.

``arguments`` are those of the environment's config: ``taskset``, ``agent`` and the others.
"""

import asyncio
import importlib
import threading
from collections.abc import Mapping
from typing import Any, cast

from posttrain.components.environments._foreign import Adapter, Seen, finite
from posttrain.components.environments._foreign.loopback import Ended, Endpoint
from posttrain.grading.turn_calls import CallForm


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The environment of a taskset."""
    loaders = importlib.import_module("verifiers.v1.utils.loaders")
    agents = importlib.import_module("verifiers.v1.configs.agent").agent_config_fields
    config = {**arguments, "taskset": {**arguments.get("taskset", {}), "id": name}}
    usual: dict[str, Any] = {"runtime": {"type": "subprocess"}}  # others need a tunnel of theirs, with an account
    if loaders.default_harness_id(name) == "bash":  # which would run what the model writes
        usual["harness"] = {"id": "null"}
    for agent in agents(loaders.resolve_env_config(config)):
        config[agent] = {**usual, **arguments.get(agent, {})}
    return Verifiers(loaders.load_environment(loaders.resolve_env_config(config)), calls)


class Verifiers(Adapter):
    """One episode: the environment runs in a thread, and waits at the endpoint for turns."""

    def __init__(self, environment: Any, form: str) -> None:
        self._environment, self._form = environment, cast(CallForm, form)
        self._endpoint: Endpoint | None = None
        self.fields = {"idx": False}

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start the program; its first request is shown, with its tools."""
        tasks = list(self._environment.taskset)
        task = tasks[int(fields.get("idx", seed)) % len(tasks)]
        self._value = 0.0
        self._endpoint = Endpoint(self._form)
        threading.Thread(target=self._run, args=(self._endpoint, task), daemon=True).start()
        return self._seen()

    def step(self, action: str) -> Seen:
        """Answer the program, and wait for its next request."""
        assert self._endpoint is not None
        self._endpoint.reply(action)
        return self._seen()

    def value(self) -> float:
        """The reward of the trace; 0 while the episode has not ended."""
        return self._value

    def close(self) -> None:
        """Answer no more requests."""
        if self._endpoint is not None:
            self._endpoint.close()

    def _seen(self) -> Seen:
        assert self._endpoint is not None
        try:
            return Seen(text=self._endpoint.request())
        except Ended as end:
            if end.reason:
                raise RuntimeError(end.reason) from None
            return Seen(terminated=True)

    def _run(self, endpoint: Endpoint, task: Any) -> None:
        try:
            endpoint.end(asyncio.run(self._episode(endpoint, task)))
        except BaseException as error:
            endpoint.end(f"{type(error).__name__}: {error}")

    async def _episode(self, endpoint: Endpoint, task: Any) -> str:
        """Run it to its end; returns what went wrong, in words."""
        clients = importlib.import_module("verifiers.v1.clients")
        client = clients.EvalClientConfig(base_url=endpoint.address, api_key_var="POSTTRAIN_NO_KEY")
        async with self._environment.serving():
            (slot,) = self._environment.slots(task)
            episode = await self._environment.run_slot(slot, clients.ModelContext(model="policy", client=client))
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        self._value = sum(finite(trace.reward) for trace in episode.traces)
        return "; ".join(f"{error.type}: {error.message}" for error in errors)
