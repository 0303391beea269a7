"""What an endpoint's answers have cost, and the stop before a budget would be passed.

    spent + reserved + most(request) > budget  -->  waits for a request that is under way
    spent + most(request) > budget, with none  -->  AlarmStop, before the request is sent

The tokens of an answer are those of its ``usage``; an endpoint that states none has them estimated, as one for four
bytes, and counted apart. Before a request its cost is bounded from above: a token for each byte of the prompt, 16 more
for each message, and `max_tokens`. Requests in flight are reserved by that bound, so that several at a time cannot pass
the budget together; what they cost less than that is free again once they are answered. Attempts that failed are not
counted; an endpoint that charges for them charges more.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from posttrain.errors import AlarmStop
from posttrain.models import Budget

BYTES: Final = 4
"""Of a token, where the endpoint does not count."""
WRAPPED: Final = 16
"""Most tokens that a chat template adds to a message."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request and its answer."""

    prompt: int
    completion: int
    estimated: bool = False

    @property
    def as_json(self) -> dict[str, Any]:
        """For the record."""
        return {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "estimated": self.estimated}

    @classmethod
    def read(cls, value: Any) -> "Usage | None":
        """The usage of an answer or of a record; None where it states none."""
        if not isinstance(value, Mapping):
            return None
        prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens")
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (prompt, completion)):
            return None
        return cls(prompt, completion, value.get("estimated") is True)  # type: ignore[arg-type]


def estimated(request: Mapping[str, Any], answer: str) -> Usage:
    """What a request and its answer probably have."""
    return Usage(-(-_bytes(request) // BYTES), -(-len(answer.encode("utf-8", "replace")) // BYTES), True)


def most(request: Mapping[str, Any]) -> Usage:
    """What a request and its answer can have at most."""
    wrapped = WRAPPED * (1 + len(request.get("messages", ())))
    return Usage(_bytes(request) + wrapped, int(request["max_tokens"]), True)


def _bytes(request: Mapping[str, Any]) -> int:
    prompt = request.get("prompt", request.get("messages"))
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
    return len(text.encode("utf-8", "replace"))


class Spending:
    """Tokens that a role's answers have cost."""

    def __init__(self, role: str, budget: Budget | None) -> None:
        self.role, self.budget = role, budget
        self.prompt = self.completion = self.estimated = self.answers = 0
        self._reserved: list[Usage] = []
        self._waiting: list[asyncio.Future[None]] = []

    def add(self, usage: Usage) -> None:
        """Count an answer; one that was kept elsewhere has no tokens."""
        self.answers += 1
        self.prompt += usage.prompt
        self.completion += usage.completion
        self.estimated += (usage.prompt + usage.completion) * usage.estimated

    async def reserve(self, request: Mapping[str, Any]) -> Usage:
        """Reserve what a request can cost, after those under way where it has no room beside them.

        Raises `AlarmStop` where the request alone would pass the budget.
        """
        wanted = most(request)
        while passed := self._passed(wanted):
            if not self._reserved:
                raise AlarmStop(
                    f"the next request to the endpoint of role '{self.role}' could pass its budget of {passed}: "
                    f"{self.summary} are spent. Its answers so far are recorded; raise "
                    f"models.{self.role}.endpoint.budget and resume"
                )
            freed = asyncio.get_running_loop().create_future()
            self._waiting.append(freed)
            await freed
        self._reserved.append(wanted)
        return wanted

    def _passed(self, wanted: Usage) -> str:
        """Which bound a request would pass beside those under way; empty for none."""
        if self.budget is None:
            return ""
        prompt = self.prompt + sum(u.prompt for u in self._reserved) + wanted.prompt
        completion = self.completion + sum(u.completion for u in self._reserved) + wanted.completion
        return self.budget.passed(prompt, completion)

    def free(self, reserved: Usage) -> None:
        """End a reservation, and let those who wait look again."""
        self._reserved.remove(reserved)
        waiting, self._waiting = self._waiting, []
        for freed in waiting:
            if not freed.done():
                freed.set_result(None)

    @property
    def summary(self) -> str:
        """What is spent, in words."""
        guess = f", {self.estimated:,} of them estimated" if self.estimated else ""
        money = "" if self.budget is None or not self.budget.priced else f" ({self.cost:.4g} in money)"
        return f"{self.prompt:,} + {self.completion:,} tokens{guess}{money}"

    @property
    def as_json(self) -> dict[str, Any]:
        """What is spent, for summaries: ``cost`` is None without prices."""
        priced = self.budget is not None and self.budget.priced
        return {
            "answers": self.answers,
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "estimated_tokens": self.estimated,
            "cost": self.cost if priced else None,
        }

    @property
    def cost(self) -> float:
        """What is spent, in the currency of the prices; 0 without prices."""
        return 0.0 if self.budget is None else self.budget.cost(self.prompt, self.completion)
