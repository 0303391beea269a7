"""OpenEnv: an environment behind a server: ``openenv:http://localhost:8000``, which its own users start.

A turn that is a JSON object is the action. Any other text is the value of the action's field `field`, one of the
``arguments`` of the environment (``message`` for most that take text); without it a turn that is no object is invalid.
Each episode has a connection of its own. A server that does not answer is called again, four times in all.

The server decides what is repeated: `reset` gets the seed, and the server may not read it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from posttrain.components.environments._foreign import Adapter, Seen, finite, viewed, written
from posttrain.components.environments._foreign.servers import tried
from posttrain.errors import UserError

OUTSIDE: Final = ("done", "reward", "metadata")
"""Fields of an observation that are not shown."""


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The environment of an address."""
    from openenv.core import GenericEnvClient

    if not name.startswith(("http://", "https://", "ws://", "wss://")):
        raise UserError(f"openenv:{name}: write the address of its server, as in openenv:http://localhost:8000")
    field = arguments.pop("field", None)
    return OpenEnv(lambda: GenericEnvClient(base_url=name, **arguments).sync(), field, view)


class OpenEnv(Adapter):
    """One episode on a server."""

    def __init__(self, connect: Any, field: str | None, view: str) -> None:
        self._connect, self._field = connect, field
        self._view = viewed(view, _shown)
        self._client: Any = None

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Connect, and start."""
        return tried(lambda: self._called(seed), "it did not answer {tries} calls", (OSError, TimeoutError))

    def _called(self, seed: int) -> Seen:
        self._client = self._connect()
        self._client.connect()
        return self._seen(self._client.reset(seed=seed))

    def step(self, action: str) -> Seen:
        """Send the action; what cannot be one is not sent."""
        read = self._read(action)
        if read is None:
            return Seen(text="This is no action: write a JSON object.", valid=False)
        return self._seen(self._client.step(read))

    def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.close()

    def _read(self, action: str) -> dict[str, Any] | None:
        try:
            found = json.loads(action)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        return None if self._field is None else {self._field: action}

    def _seen(self, result: Any) -> Seen:
        reward = 0.0 if result.reward is None else finite(result.reward)
        return Seen(text=self._view(result.observation), reward=reward, terminated=bool(result.done))


def _shown(observation: Any) -> str:
    """The only text of an observation, or all of its fields."""
    if not isinstance(observation, Mapping):
        return written(observation)
    kept = {name: value for name, value in observation.items() if name not in OUTSIDE and value is not None}
    only = next(iter(kept.values())) if len(kept) == 1 else kept
    return written(only)
