"""Runs programs with kernels in the sandbox, all of a task in one start, each in a process of its own.

A program that did not end, or after which the limits were used up, is run again alone. What comes out are claims of the
programs: results are compared outside. The process that starts them cannot be read by them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from posttrain.grading import toy_kernels, triton_kernels
from posttrain.grading.function_calls import outcomes_in
from posttrain.grading.kernel_values import Argument, packed
from posttrain.grading.programs import encoded, how_it_ended
from posttrain.sandbox import Limits, Pool, Result, python_job

Dialect = Literal["toy", "triton"]
STARTING_S: Final = 1.0
"""Seconds of processor time for an interpreter that loads Triton, which takes 0.4 where jobs are not forked."""
MOST_OUTPUT: Final = 8 << 20
"""Bytes that a program may hand out."""

_IMPORTS: Final = "import ctypes, json, os, resource, signal, sys\n"
_READ: Final = """
job = json.loads(sys.stdin.buffer.read())
strict = job["strict"]
out = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.stdin = open(os.devnull)
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
"""
_EACH: Final = """
def tell(channel, number, found):
    channel.write(json.dumps([number, found]) + "\\n")
    channel.flush()


def fault(error):
    return ["raised", (type(error).__name__ + ": " + str(error).strip()[-200:])]


def tried(place, code, channel):
    for number, case in enumerate(job["cases"]):
        try:
            if not number:
                space = space_of(place, code, job["reference"], job["function"])
            found = space[job["function"]](*map(opened, case))
            found = ["values", [closed(own) for own in (found if type(found) in (tuple, list) else (found,))]]
        except Exception as error:
            found = fault(error)
        tell(channel, number, found)
        if found[0] != "values":
            return
    tell(channel, -2, ["launched", launches(), counted()])


def compiled(place, code, channel):
    try:
        space, size = space_of(place, code, "", job["function"]), 0
        for name, arguments, warps, depth in job["launches"][place]:
            size += len(assembly(space[name], arguments, warps, depth, job["capability"]))
        found = ["compiled", size]
    except BaseException as error:
        found = fault(error)
    tell(channel, 0, found)


for place, code in enumerate(job["codes"]):
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        out.close()
        os.close(read)
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (job["seconds"], job["seconds"] + 1))
        with os.fdopen(write, "w") as channel:
            (compiled if job["launches"] else tried)(place, code, channel)
            tell(channel, -1, True)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as own:
        text = own.read(job["most"]).decode("utf-8", "replace")
    try:
        os.killpg(process, signal.SIGKILL)
    except OSError:
        pass
    os.waitpid(process, 0)
    out.write(json.dumps([place, text]) + "\\n")
    out.flush()
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What a program did."""

    results: Sequence[Sequence[Any]] = ()
    """Of each case its packed results."""
    fault: str = ""
    """Why there are none for all cases."""
    broken: str = ""
    """How the sandbox failed, whatever the program."""
    work: Mapping[str, int] = field(default_factory=dict)
    """Counts of operations, of all cases together."""
    launches: Sequence[Any] = ()


def shared(dialect: Dialect, *, compiler: bool = False) -> str:
    """The part of the script that forked jobs share: what does not depend on programs."""
    if dialect == "toy":
        return _IMPORTS
    start = f"interpreted = {not compiler}\n{triton_kernels.START}{_IMPORTS}{triton_kernels.LIBRARY}"
    return start + (triton_kernels.COMPILER if compiler else "") + triton_kernels.WARMED


def script(dialect: Dialect) -> str:
    """What follows in each job."""
    return _READ + (toy_kernels.SCRIPT if dialect == "toy" else "") + _EACH


@dataclass(frozen=True, slots=True)
class Programs:
    """Programs of one task, where they are run."""

    dialect: Dialect
    function: str
    pool: Pool
    limits: Limits

    async def results(
        self, codes: Sequence[str], cases: Sequence[Sequence[Argument]], *, strict: bool, reference: str
    ) -> list[Run]:
        """Run each program on all cases."""
        message = {
            "cases": [[packed(argument) for argument in case] for case in cases],
            "reference": reference,
            "strict": strict,
            "launches": [],
        }
        return [_run(outcomes, ended, len(cases)) for outcomes, ended in await self._each(codes, [], message)]

    async def refusals(self, codes: Sequence[str], launches: Sequence[Any], capability: int) -> list[str]:
        """Why the kernels of each program cannot be compiled for the launches; empty where they can."""
        message = {"cases": [], "reference": "", "strict": True, "capability": capability}
        found = []
        for outcomes, ended in await self._each(codes, launches, message, compiler=True):
            reported = outcomes.get(0)
            done = isinstance(reported, list) and reported[:1] == ["compiled"] and outcomes.get(-1) is True
            found.append("" if done else _raised(reported) or how_it_ended(ended))
        return found

    async def _each(
        self, codes: Sequence[str], launches: Sequence[Any], message: Mapping[str, Any], *, compiler: bool = False
    ) -> list[tuple[dict[int, Any], Result]]:
        """What each program reported, and how the sandbox ended."""
        job = python_job(
            encoded(script(self.dialect)),
            shared=shared(self.dialect, compiler=compiler),
            folders=triton_kernels.folders() if self.dialect == "triton" else None,
            warm=True,
        )
        seconds = max(1, int(self.limits.cpu_s))
        message = {**message, "function": self.function, "seconds": seconds, "most": MOST_OUTPUT}

        async def run(own: Sequence[int]) -> tuple[Result, dict[int, Any]]:
            of = {"codes": [codes[n] for n in own], "launches": [launches[n] for n in own] if compiler else []}
            limits = replace(
                self.limits,
                cpu_s=self.limits.cpu_s * len(own) + STARTING_S,
                wall_s=self.limits.wall_s * len(own),
                output_kb=max(self.limits.output_kb, 2 * len(own) * (MOST_OUTPUT >> 10)),
            )
            result = await self.pool.result(replace(job, stdin=json.dumps({**message, **of}).encode("ascii")), limits)
            return result, outcomes_in(result.stdout)

        result, texts = await run(range(len(codes)))
        found = []
        for place in range(len(codes)):
            ended, text = result, texts.get(place)
            if text is None and len(codes) > 1:
                ended, alone = await run([place])
                text = alone.get(0)
            reported = outcomes_in(text.encode("utf-8", "replace")) if isinstance(text, str) else {}
            found.append((reported, ended))
        return found


def _run(outcomes: dict[int, Any], ended: Result, cases: int) -> Run:
    if ended.outcome == "sandbox_error":
        return Run(broken=f"the sandbox failed: {ended.explanation}")
    results = []
    for number in range(cases):
        match outcomes.get(number):
            case ["values", list() as own]:
                results.append(own)
            case reported:
                return Run(results, _raised(reported) or _ended(ended))
    match outcomes.get(-2):
        case ["launched", list() as launches, dict() as work]:
            counts = {name: own for name, own in work.items() if type(own) is int and 0 <= own < 1 << 53}
            return Run(results, "", "", counts, launches)
    return Run(results, "it reported no launches")


def _raised(reported: Any) -> str:
    match reported:
        case ["raised", str() as text]:
            return text[:200]
    return ""


def _ended(result: Result) -> str:
    return "it ended, or was ended, before its results" if result.outcome == "ok" else how_it_ended(result)
