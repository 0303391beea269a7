"""Programming languages as data; compiling programs once, running them for each test, and comparing the output."""

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from posttrain.component import frozen, nearest
from posttrain.errors import UserError
from posttrain.grading.extraction import shown
from posttrain.grading.programs import encoded, how_it_ended
from posttrain.sandbox import Job, Limits, Pool, Result, missing_programs

PASSED: Final = "passes"


@frozen
class Language:
    """How programs of a language are compiled and run."""

    file: str
    """Name of the source file."""
    run: str
    """Command that runs a program."""
    compile: str = ""
    """Command that makes `program`; empty where nothing is compiled."""
    program: str = ""
    """The one file that the compiler makes."""
    empty: str = ""
    """A program that does nothing, to measure the work of starting one."""
    package: str = ""
    """Package to install if a command is missing."""


COMPILING = Limits(cpu_s=20.0, wall_s=120.0, memory_mb=1024, output_kb=16_384)
"""Limits of a compiler; its output is the program."""


def find_language(name: str, more: Mapping[str, Language]) -> Language:
    """A language by its name. Raises `UserError` for one that is not known."""
    known = {**shipped_languages(), **more}
    if name not in known:
        raise UserError(f"there is no language '{name}'; {nearest(name, known)}")
    return known[name]


def need_commands(name: str, language: Language) -> None:
    """Raise `UserError` if a command of a language is not installed."""
    commands = [shlex.split(text)[0] for text in (language.compile, language.run) if text]
    if missing := missing_programs([command for command in commands if not command.startswith("./")]):
        where = f" (on Debian: apt install {language.package})" if language.package else ""
        raise UserError(f"{', '.join(missing)} is not installed, which programs in {name} need{where}")


async def build(pool: Pool, language: Language, code: str) -> Result | dict[str, bytes]:
    """The files for running a program, or the result of the compiler if it failed.

    A compiled program is returned as bytes and sent again for each test, so that runs share nothing.
    """
    files = {language.file: encoded(code)}
    if not language.compile:
        return files
    script = f'{language.compile} >&2 && cat "{language.program}"'
    compiled = await pool.result(Job(command=("sh", "-c", script), files=files), COMPILING)
    return {language.program: compiled.stdout} if compiled.outcome == "ok" else compiled


def job_of(language: Language, files: Mapping[str, bytes], stdin: str) -> Job:
    """One run of a program."""
    return Job(command=tuple(shlex.split(language.run)), stdin=encoded(stdin), files=files)


def fault_of_tests(tests: Any) -> str:
    """The fault of a task's tests; empty if there is none."""
    if isinstance(tests, Sequence) and not isinstance(tests, str) and tests and all(map(_is_test, tests)):
        return ""
    return "has no field 'tests', a list of mappings with texts 'input' and 'output'"


def verdict(result: Result, expected: str) -> str:
    """`PASSED`, or what went wrong. White space at the end of the output is ignored, at its start it is not."""
    if result.outcome != "ok":
        return how_it_ended(result)
    printed = result.stdout.rstrip()
    if printed == encoded(expected).rstrip():
        return PASSED
    return f"prints {shown(printed.decode('utf-8', errors='replace'))} instead of {shown(expected.rstrip())}"


async def first_fault(
    pool: Pool, language: Language, built: Mapping[str, bytes], tests: Sequence[Mapping[str, str]], limits: Limits
) -> tuple[str, Result | None]:
    """Run tests in order until one fails: what went wrong and how that run ended; empty and None if all pass."""
    for number, test in enumerate(tests):
        result = await pool.result(job_of(language, built, test["input"]), limits)
        if (outcome := verdict(result, test["output"])) != PASSED:
            return f"test {number + 1} of {len(tests)}: {outcome}", result
    return "", None


@cache
def shipped_languages() -> Mapping[str, Language]:
    """The languages of `languages.yaml`."""
    tree: dict[str, dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name("languages.yaml").read_text())
    return {name: Language(**settings) for name, settings in tree.items()}


def _is_test(test: Any) -> bool:
    return isinstance(test, Mapping) and all(isinstance(test.get(name), str) for name in ("input", "output"))
