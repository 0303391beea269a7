"""What other roles read and write while an environment requests it of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from posttrain.components.environments import EnvironmentFailed, Request
from posttrain.engines import Sampler, Sampling
from posttrain.errors import NoAnswer
from posttrain.types import Fact, Message


@dataclass(frozen=True, kw_only=True)
class Requested(Fact):
    """Record of the requests of an episode. The policy sees of them what the environment shows, and no more."""

    requests: tuple[Mapping[str, Any], ...] = ()
    """Of each, ``turn`` (the number of the policy's turn that it follows, from 0), ``role``, ``read`` (the messages
    that are new since the role's request before) and ``wrote``."""


@dataclass(kw_only=True)
class Writers:
    """The roles that write in an episode, and what they read and wrote so far."""

    samplers: Mapping[str, Sampler]
    requests: list[Mapping[str, Any]] = field(default_factory=list)
    turn: int = 0
    """The policy's turn in progress."""
    _read: dict[str, tuple[Message, ...]] = field(default_factory=dict)

    async def write(self, request: Request) -> str:
        """Has a role write what is requested. Raises `EnvironmentFailed`."""
        if request.role not in self.samplers:
            raise EnvironmentFailed(f"the role '{request.role}' is to write, which the environment does not declare")
        sampling = Sampling(max_tokens=request.max_tokens)
        try:
            (text,) = await self.samplers[request.role].write(request.prompt, 1, sampling)
        except NoAnswer as error:
            raise EnvironmentFailed(f"the role '{request.role}' gave no answer: {error}") from error
        before = self._read.get(request.role, ())
        new = request.prompt[len(before) :] if request.prompt[: len(before)] == before else request.prompt
        self._read[request.role] = request.prompt
        read = [dict(message) for message in new]
        self.requests.append({"turn": self.turn, "role": request.role, "read": read, "wrote": text})
        return text

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The record; none where nothing was requested."""
        return (Requested(requests=tuple(self.requests)),) if self.requests else ()
