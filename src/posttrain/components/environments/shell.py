"""A shell in the sandbox: a file of numbers, and a question about it whose answer is to be written into another file.

Turns are commands of ``sh``, and ``done`` ends the episode. They run in the box of the sandbox, where there is a file
``a`` with a number a line; the answer is expected in ``out``. The question is drawn by the task's key: the number of
lines, the last one, the largest number, or the lines in the order of their numbers. The verdict is 1 where ``out`` has
what a computation outside of the sandbox gives. The optimum is one command, and ``done``; the regret is the turns
beyond it, where a wrong answer counts as one turn more than the limit.

An episode has one box, in which a shell takes its commands: files and variables last (`posttrain.sandbox.shells`).
Between commands nothing runs, so an episode repeats as long as its commands do. What a command prints is cut after
`shown` characters. What takes too long or too much memory is ended with the box, and the observation has how; so is a
shell that ends itself. Commands after that are not run.

Source: the setting of InterCode, arXiv:2306.14898 (Bash in a container, rewarded by the state that it leaves); files
and questions are ours.
"""

import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, PositiveInt

from posttrain import sandbox
from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.components.environments._extra_turns import extra_turns
from posttrain.sandbox import Limits, Result, Tier
from posttrain.types import Task

Answer = Callable[[list[int]], list[int]]
QUESTIONS: Final[Mapping[str, tuple[str, Answer]]] = {
    "the number of lines": ("wc -l < a > out", lambda numbers: [len(numbers)]),
    "the last line": ("tail -n 1 a > out", lambda numbers: numbers[-1:]),
    "the largest number": ("sort -n a | tail -n 1 > out", lambda numbers: [max(numbers)]),
    "the lines in order": ("sort -n a > out", lambda numbers: sorted(numbers)),
}
"""What is asked for, the command that answers it, and the lines of the answer."""
LEFT: Final = 'head -c 4096 "$HOME/out"'
"""Prints the answer."""
LONGEST: Final = 2000
"""Characters of a command."""
SHORTEST: Final = 2
"""Turns of the optimum."""


@frozen
class Shell(Environment):
    """One question per rollout."""

    horizon: PositiveInt = 4
    """Turns after which the episode ends."""
    shown: Annotated[int, Field(ge=1, le=100_000)] = 200
    """Most characters of what a command prints."""
    limits: Limits = Limits(cpu_s=2.0, wall_s=20.0, memory_mb=64)
    """Of each command."""
    weakest: Tier = "cgroup"
    """Weakest isolation that is allowed."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` where there is no such sandbox."""
        sandbox.open_pool(self.weakest)

    def instance(self, task: Task, draw: Draw) -> Instance:
        """The file and the question of the task. Nothing is random."""
        rng = Random(zlib.crc32(f"shell:{task.key}".encode()))
        return Session(self, rng.sample(range(100), rng.randint(3, 6)), rng.choice(list(QUESTIONS)))


class Session(Instance):
    """One episode."""

    def __init__(self, rules: Shell, numbers: list[int], question: str) -> None:
        self._rules, self._numbers, self._question = rules, numbers, question
        self._command, answer = QUESTIONS[question]
        self._wanted = [str(number) for number in answer(numbers)]
        self._ran: list[str] = []
        self._shell: sandbox.Shell | None = None
        self._turns, self._written = 0, ""

    def begin(self) -> Observation:
        """The question."""
        return self._observation(f"Write {self._question} of a into out.")

    async def step(self, action: str) -> Outcome:
        """Run a command. Raises `RuntimeError` where the sandbox fails."""
        self._turns += 1
        command, over = action.strip(), self._turns == self._rules.horizon
        if command == "done":
            return Outcome(observation=self._observation("bye"), done=True)
        if not command or len(command) > LONGEST or not _can_be_an_argument(command):
            return Outcome(observation=self._observation("error"), done=over, valid=False)
        self._ran.append(command)
        self._shell = self._shell or self._new_shell()
        result = await _run(self._shell, command)
        text = result.stdout.decode("utf-8", errors="replace").strip()
        if len(text) > self._rules.shown:
            text = f"{text[: self._rules.shown]} (cut)"
        if result.outcome not in ("ok", "nonzero"):
            text = f"{text} ({result.outcome})"
        return Outcome(observation=self._observation(text), done=over, valid=result.outcome == "ok")

    async def solution(self) -> str:
        """The command that answers the question, and the end."""
        return "done" if self._command in self._ran else self._command

    async def finish(self) -> None:
        """Read the answer."""
        if self._shell is None:
            return
        if (over := self._shell.over) is not None:
            if over.outcome not in ("ok", "nonzero"):
                return
            # The box went with the shell, which ended itself: what it wrote before counts.
            await self._shell.close()
            self._shell = self._new_shell()
            again = "\n".join(f"eval {shlex.quote(command)}" for command in self._ran)
            await _run(self._shell, f"({again}\n) > /dev/null 2>&1")
        self._written = (await _run(self._shell, LEFT)).stdout.decode("utf-8", errors="replace")

    async def close(self) -> None:
        """End the box."""
        if self._shell is not None:
            await self._shell.close()

    def verdict(self) -> Verdict:
        """1 for the right answer."""
        solved = self._written.split() == self._wanted
        text = f"out has {self._written.strip()[:80]!r}, {' '.join(self._wanted)} is right"
        return Verdict(value=float(solved), solved=solved, explanation=text)

    def measures(self) -> Mapping[str, float]:
        """Commands that were run, and the regret in turns."""
        solved, horizon = self.verdict().solved, self._rules.horizon
        regret = extra_turns(self._turns, solved=solved, shortest=SHORTEST, horizon=horizon)
        return {"calls": float(len(self._ran)), "regret": regret}

    def _new_shell(self) -> sandbox.Shell:
        """A shell with the file."""
        rules = self._rules
        setup = f"printf '%s\\n' {' '.join(map(str, self._numbers))} > a"
        return sandbox.open_pool(rules.weakest).shell(rules.limits, setup, commands=rules.horizon + 1)

    def _observation(self, text: str) -> Observation:
        commands = tuple(dict.fromkeys(command for command, _ in QUESTIONS.values()))
        key = f"{self._question} {self._numbers} {self._ran}"
        return Observation(text=f"\n{text}\n", state_key=key, legal=(*commands, "cat a", "cat out", "done"))


async def _run(shell: sandbox.Shell, command: str) -> Result:
    """Runs a command. Raises `RuntimeError` where the sandbox fails."""
    result = await shell.run(command)
    if result.outcome == "sandbox_error":
        raise RuntimeError(f"the sandbox failed: {result.explanation}")
    return result


def _can_be_an_argument(text: str) -> bool:
    """Whether a program can be given a text: it has no NUL, and no surrogate that UTF-8 cannot have."""
    return not any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text)
