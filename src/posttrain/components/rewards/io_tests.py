"""Programs in any language, tested by their output for given input.

A task's field ``tests`` is a list of ``{"input": text, "output": text}``; its field ``language`` is optional. A
language is a few lines of YAML (`languages.yaml`): file name, compile command, run command. Source: Boruch-Gruszecki et
al. 2025 (Agnostics), arXiv:2508.04865: the first failed test decides, outputs are compared up to white space at their
ends, and a program that runs with a wrong output gets `wrong_output` (0.2 in the paper's runs).

Before training, reference programs are run against their own tests (`references`): the field ``reference``
or the answer.

Differs: a program is compiled once, not for every test, and each test runs in a sandbox of its own. Limits are part of
the reward. The language is that of the task or the reward, never that of the code fence.
"""

from collections.abc import Mapping, Sequence

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.engines import wait_for
from posttrain.errors import TaskFault
from posttrain.grading.languages import (
    Language,
    build,
    fault_of_tests,
    find_language,
    first_fault,
    need_commands,
    shipped_languages,
)
from posttrain.grading.programs import broken, how_it_ended, score_each
from posttrain.grading.references import MOST_CHECKED, check_references, has_reference, unchecked
from posttrain.sandbox import Limits, Result, Tier, open_pool
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class IOTests(Reward):
    """Rewards programs with the expected output."""

    language: str = "python"
    """Language of the programs, for tasks without their own."""
    languages: Mapping[str, Language] = Field(default_factory=dict)
    """Further languages by name; they override shipped ones of the same name."""
    right: float = 1.0
    """Reward when all tests pass."""
    wrong_output: float = 0.0
    """Reward when the first failed test ran to its end; 0.2 in Agnostics."""
    failed: float = 0.0
    """Reward when the program does not compile, crashes, or exceeds a limit."""
    missing: float = 0.0
    """Reward of a completion without a program."""
    references: NonNegativeInt = MOST_CHECKED
    """Most reference programs that are run before training; of more tasks some, evenly spread."""
    limits: Limits = Limits(cpu_s=5.0)
    """Limits of one run of a program."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which programs may be run: see ``posttrain doctor``."""

    @property
    def runs(self) -> str:
        """The language of the programs."""
        return self.language

    def prepare(self) -> None:
        """Open the sandbox and find the language. Raises `UserError` where one of them is missing."""
        open_pool(self.weakest)
        need_commands(self.language, find_language(self.language, self.languages))

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a test, of an unknown language, or whose reference fails a test."""
        for task in tasks:
            if fault := self._fault(task):
                raise TaskFault(task.key, f"task '{task.key}' {fault}")
        wait_for(check_references(tasks, self._score, self.references))

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """How many references are not run before training."""
        return unchecked(sum(has_reference(task) for task in tasks), self.references)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compile each program once, and run its tests in order until one fails."""
        return await score_each(group, self._score, self.missing, lambda trajectory: self._fault(trajectory.task))

    def _fault(self, task: Task) -> str:
        fields = task.fields
        name = fields.get("language", self.language)
        if name not in {**shipped_languages(), **self.languages}:
            return f"is in the language {name!r:.40}, which is not known"
        return fault_of_tests(fields.get("tests"))

    async def _score(self, trajectory: Trajectory, code: str) -> Score:
        language = find_language(trajectory.task.fields.get("language", self.language), self.languages)
        pool = open_pool(self.weakest)
        built = await build(pool, language, code)
        if isinstance(built, Result):
            return broken(built) or self._failed(code, f"does not compile: {how_it_ended(built)}")
        tests = trajectory.task.fields["tests"]
        fault, result = await first_fault(pool, language, built, tests, self.limits)
        if result is not None:
            value = self.wrong_output if result.outcome == "ok" else self.failed
            return broken(result) or Score(value=value, status="wrong", answer=code, explanation=fault)
        return Score(value=self.right, status="ok", answer=code, explanation=f"passes {len(tests)} tests")

    def _failed(self, code: str, explanation: str) -> Score:
        return Score(value=self.failed, status="wrong", answer=code, explanation=explanation)
