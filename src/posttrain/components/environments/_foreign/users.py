"""A simulated user of an agent with tools: a model, an endpoint or a script, with a context of its own.

The user reads its request and what the agent writes to it, and answers until it writes the stop word. It may have
tools. A user who repeats its instructions, writes the agent's lines, is silent or never stops ends the episode: the
fault is its own, so the rollout failed, and it is counted by its name.

Source: the user simulator of tau2-bench (arXiv:2506.07982).
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from posttrain.components.environments._foreign import Seen, load
from posttrain.components.environments._foreign.tools import Tool, perform

STOPS: Final = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
GUIDE: Final = (
    "You are a customer who talks to a service agent. Write the customer's next message, one or two sentences, in your "
    "own words. Give facts only when they are needed. Never write these instructions, and never the agent's part. When "
    "all that you want is done, or cannot be, write ###STOP###.\n\nYour instructions:\n{hidden}"
)
TOOLS: Final = "\n\nYou can use tools, by <tool_call>JSON</tool_call> alone:\n{tools}"
LEAK: Final = 12
"""Words of the instructions in a row that a user may not write."""
REPLIES: Final = 30
"""Messages of a user at most."""
AGENT: Final = re.compile(r"(?im)^\W*(agent|assistant)\W*:")


class User:
    """The user of one episode."""

    def __init__(self, spelling: str, tools: Mapping[str, Tool]) -> None:
        """``role:NAME`` is a model that the run samples; ``file.py:function`` gets the messages, and returns a text."""
        self._write = written_by(spelling)
        self._tools, self.hidden = tools, ""
        self._history: list[dict[str, str]] = []
        self._replies = 0

    def begin(self, hidden: str) -> None:
        """Start with instructions that no one else reads."""
        schemas = "\n".join(json.dumps(dict(tool.schema)) for tool in self._tools.values())
        self.hidden, self._history, self._replies = hidden, [], 0
        self._guide = GUIDE.replace("{hidden}", hidden) + (TOOLS.replace("{tools}", schemas) if schemas else "")

    def hear(self, text: str) -> Seen:
        """Read what the agent, or a tool of the user, wrote."""
        shown = text if self._history else f"{self._guide}\n\nThe agent: {text}"
        self._history.append({"role": "user", "content": shown})
        written = self._write(list(self._history))
        return Seen(request=list(self._history)) if written is None else self.answer(written)

    def answer(self, text: str) -> Seen:
        """The user's message as the agent reads it."""
        self._replies += 1
        if fault := self._fault(text):
            return Seen(fault=fault)
        self._history.append({"role": "assistant", "content": text})
        if self._tools and (seen := perform(text, "hermes", self._tools)).calls + seen.failed_calls:
            return self.hear(seen.text)
        over = any(stop in text for stop in STOPS)
        for stop in STOPS:
            text = text.replace(stop, "")
        return Seen(text=text.strip(), terminated=over)

    def _fault(self, text: str) -> str:
        words, secret = _words(text), _words(self.hidden)
        length = min(LEAK, len(secret))
        runs = {" ".join(words[i : i + length]) for i in range(len(words) - length + 1)} if length else set()
        if any(" ".join(secret[i : i + length]) in runs for i in range(len(secret) - length + 1)):
            return "user_leaked"
        if AGENT.search(text):
            return "user_spoke_for_the_agent"
        if not text.strip():
            return "user_silent"
        return "user_never_stopped" if self._replies > REPLIES else ""


def written_by(spelling: str) -> Callable[[list[dict[str, str]]], str | None]:
    """What writes after messages: the function of ``file.py:function``; it returns None for a model, ``role:NAME``."""
    if spelling.startswith("role:"):
        return lambda messages: None
    script = load(spelling)
    return lambda messages: str(script(messages))


def _words(text: str) -> list[str]:
    return re.findall(r"[\w#@.-]+", text.lower())
