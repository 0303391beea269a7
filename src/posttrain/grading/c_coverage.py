"""Which lines of a C file a call reaches, by gcov, and whether it crashes or hangs.

The file is compiled with ``gcc --coverage`` in the sandbox, together with a program that calls the function with an
input. Each input has a process of its own, whose counters gcov reads; a crash is a signal, and its line is where the
last block was begun (``-fsanitize-coverage=trace-pc``). A call hangs that begins more than `ticks` blocks, or uses up
its processor time. The function takes one text, bytes with their size, or numbers:

    int parse(const char *text)        int parse(const uint8_t *data, size_t size)        int f(int a, double b)
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from posttrain.errors import UserError
from posttrain.grading.c_source import Parameter, read_source, shown
from posttrain.grading.line_coverage import Ran
from posttrain.sandbox import Job, Limits, Pool, missing_programs, python_job

PROGRAMS: Final = ("gcc", "gcov", "addr2line")
FLAGS: Final = "-std=gnu17 -gdwarf-4 -O0 -no-pie -fno-pie -fstack-protector-all -w"
HOOK: Final = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
extern void __gcov_dump(void);
void posttrain_call(const unsigned char *, size_t);
static volatile long left = -1;
static void *volatile last;
static int out;
static char *end = "returned";
static void finish(const char *how, int number) {
    char line[80];
    left = -1;
    int n = snprintf(line, sizeof line, "%s %d %p\n", how, number, last);
    if (write(out, line, n) == n) __gcov_dump();
    _exit(0);
}
void __sanitizer_cov_trace_pc(void) {
    if (left < 0) return;
    last = __builtin_return_address(0);
    if (left-- == 0) finish("hung", 0);
}
static void handler(int number) { finish(number == SIGXCPU ? "hung" : "signal", number); }
static void leave(void) { finish(end, 0); }
int main(int count, char **words) {
    static unsigned char input[1 << 16];
    static char stack[1 << 16];
    size_t size = fread(input, 1, sizeof input, stdin);
    out = dup(1);
    if (!freopen("/dev/null", "r", stdin) || !freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
        return 1;
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&own, 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESETHAND};
    int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGXCPU};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, 0);
    struct rlimit seconds = {atoi(words[2]), atoi(words[2]) + 1}, memory = {1u << 28, 1u << 28};
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_AS, &memory);
    atexit(leave);
    left = atol(words[1]);
    posttrain_call(input, size);
    left = -1;
    finish("returned", 0);
}
"""
CALL: Final = """
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#define main posttrain_main
#include "target.c"
#undef main
static const char *posttrain_text(const unsigned char *data, size_t number) {
    while (number--) data += strlen((const char *) data) + 1;
    return (const char *) data;
}
void posttrain_call(const unsigned char *data, size_t size) {
    unsigned char *copy = malloc(size + 1);
    memcpy(copy, data, size);
    copy[size] = 0;
    (void) posttrain_text;
    %s(%s);
}
"""
DRIVER: Final = r"""
import base64, json, os, subprocess, sys
job = json.loads(sys.stdin.buffer.read())
os.chdir(os.environ.get("HOME") or ".")
for name, content in job["files"].items():
    with open(name, "wb") as file:
        file.write(base64.b64decode(content))
os.chmod("program", 0o700)
def counted():
    done = subprocess.run(["gcov", "--json-format", "--stdout", "call.gcda"], capture_output=True)
    try:
        files = json.loads(done.stdout.splitlines()[0])["files"]
    except (ValueError, LookupError):
        return []
    own = next((file["lines"] for file in files if file["file"].endswith("target.c")), [])
    return sorted({line["line_number"] for line in own if line["count"]})
found = []
for content in job["inputs"]:
    if os.path.exists("call.gcda"):
        os.remove("call.gcda")
    try:
        done = subprocess.run(["./program", str(job["ticks"]), str(job["seconds"])], input=base64.b64decode(content),
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=job["wall"])
        words, code = done.stdout.split(), done.returncode
    except subprocess.TimeoutExpired:
        words, code = [b"hung", b"0", b"0x0"], 0
    if len(words) != 3:
        words = [b"ended" if code else b"returned", b"0", b"0x0"]
    found.append([words[0].decode(), int(words[1]), words[2].decode(), counted()])
places = [own[2] if own[2].startswith("0x") else "0x0" for own in found]
named = subprocess.run(["addr2line", "-e", "program", *(hex(max(int(own, 16) - 1, 0)) for own in places)],
                       capture_output=True, text=True).stdout.splitlines()
for own, name in zip(found, named):
    file, _, line = name.split(" ")[0].rpartition(":")
    own[2] = int(line) if file.endswith("target.c") and line.isdigit() else 0
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class CTarget:
    """A C function whose lines are counted; what fuzzing reads of it is as of `line_coverage.Target`."""

    files: Mapping[str, str]
    """Program, counters and source, in base64, by name."""
    function: str
    parameters: tuple[str, ...]
    text: Literal["bytes", ""]
    """Whether an input is text or bytes, and not numbers."""
    terminated: bool
    """Whether it ends at its first zero."""
    parents: Mapping[int, int | None]
    guards: Mapping[int, str]
    constants: tuple[Any, ...]
    numbers: tuple[Parameter, ...] = ()
    """The parameters, where all are numbers."""

    def encoded(self, inputs: Sequence[Any]) -> bytes | None:
        """What the program reads for an input; None where the function takes others."""
        if self.text:
            own = inputs[0] if isinstance(inputs[0], bytes) else str(inputs[0]).encode("utf-8", "surrogateescape")
            return own.partition(b"\0")[0] if self.terminated else own
        if len(inputs) != len(self.numbers):
            return None
        parts = []
        for value, one in zip(inputs, self.numbers, strict=True):
            if type(value) is not int and not (type(value) is float and one.kind == "real"):
                return None
            if one.kind == "whole" and not one.low <= value <= one.high:
                return None
            parts.append(repr(value) if one.kind == "whole" or abs(value) < 1e300 else "inf")
        return b"".join(part.encode() + b"\0" for part in parts)


async def c_target_of(source: str, function: str, pool: Pool) -> CTarget:
    """The compiled program. Raises `UserError` for one that cannot be compiled, or a function of other parameters."""
    if missing := missing_programs(PROGRAMS):
        raise UserError(
            f"targets in C need {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed "
            "(on Debian: apt install gcc binutils)"
        )
    found = read_source(source)
    if function not in found.functions:
        raise UserError(f"no function '{function}' in the file; functions there: {shown(found.functions)}")
    given = found.functions[function]
    kinds = tuple(one.kind for one in given)
    if kinds == ("bytes",) or kinds == ("bytes", "whole"):
        text: Literal["bytes", ""] = "bytes"
        call = "(void *) copy" if len(kinds) == 1 else "(void *) copy, size"
    elif kinds and set(kinds) <= {"whole", "real"}:
        text = ""
        call = ", ".join(_READS[one.kind].format(i) for i, one in enumerate(given))
    else:
        raise UserError(
            f"{function} takes ({', '.join(one.type for one in given) or 'nothing'}); a target takes one text (const "
            "char *), bytes with their size, or numbers"
        )
    files, lines = await _built(source, CALL % (function, call), pool)
    parents = {line: found.parents.get(line) for line in lines}
    guards = {line: found.guards.get(line, "") for line in lines}
    names = tuple(one.name for one in given[: 1 if text else None])
    constants = tuple(found.constants.values())
    return CTarget(files, function, names, text, len(kinds) == 1, parents, guards, constants, () if text else given)


_READS: Final = {
    "whole": "strtoll(posttrain_text(data, {}), 0, 0)",
    "real": "strtod(posttrain_text(data, {}), 0)",
}


async def _built(source: str, call: str, pool: Pool) -> tuple[dict[str, str], list[int]]:
    """Program and counters by name, and the lines that can be counted."""
    script = (
        f"gcc {FLAGS} -c hook.c && gcc {FLAGS} --coverage -fsanitize-coverage=trace-pc -c call.c && "
        "gcc -no-pie --coverage -o program call.o hook.o -lm || exit 1\n"
        'for f in program call.gcno; do base64 -w0 "$f"; echo; done; gcov --json-format --stdout call.gcno'
    )
    files = {"target.c": source.encode("utf-8", "surrogateescape"), "call.c": call.encode(), "hook.c": HOOK.encode()}
    job = Job(command=("sh", "-c", script), files=files)
    result = await pool.result(job, Limits(cpu_s=60.0, wall_s=300.0, memory_mb=1024, output_kb=65_536))
    if result.outcome == "sandbox_error":
        raise UserError(f"the sandbox failed: {result.explanation}; see posttrain doctor")
    errors = [one for one in result.stderr.decode("utf-8", "replace").splitlines() if "error" in one]
    if result.outcome != "ok":
        raise UserError(f"the file cannot be compiled: {(errors or [result.outcome])[0]}")
    known: list[int] = []
    try:
        program, notes, counted = result.stdout.decode("ascii", "replace").split("\n")[:3]
        own = [one["lines"] for one in json.loads(counted)["files"] if one["file"].endswith("target.c")]
        known = sorted({int(line["line_number"]) for lines in own for line in lines})
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    if not known:
        raise UserError("gcov counts no line of the file")
    packed = {"program": program, "call.gcno": notes}
    return packed | {"target.c": base64.b64encode(files["target.c"]).decode()}, known


async def run_c_calls(
    target: CTarget, given: Sequence[Sequence[Any]], pool: Pool, limits: Limits, ticks: int
) -> list[Ran]:
    """What each call does. Raises `UserError` where the sandbox fails."""
    encoded = [target.encoded(inputs) for inputs in given]
    sent = [own for own in encoded if own is not None]
    ran = iter(await _ran(target, sent, pool, limits, ticks) if sent else ())
    return [Ran("refused") if own is None else next(ran) for own in encoded]


async def _ran(target: CTarget, sent: Sequence[bytes], pool: Pool, limits: Limits, ticks: int) -> list[Ran]:
    seconds = max(1, round(limits.cpu_s))
    message = {"files": dict(target.files), "ticks": ticks, "seconds": seconds, "wall": limits.wall_s}
    message["inputs"] = [base64.b64encode(own).decode() for own in sent]
    job = python_job(DRIVER.encode(), stdin=json.dumps(message).encode(), warm=True)
    many = Limits(
        cpu_s=(seconds + 2.0) * (len(sent) + 1), wall_s=(limits.wall_s + 5.0) * (len(sent) + 1), memory_mb=1024
    )
    result = await pool.result(job, many)
    if result.outcome == "sandbox_error":
        raise UserError(f"the sandbox failed: {result.explanation}; see posttrain doctor")
    try:
        found = json.loads(result.stdout)
        runs = [_read(one, target) for one in found]
    except (ValueError, TypeError, LookupError, RecursionError):
        runs = []
    if len(runs) == len(sent):
        return runs
    if len(sent) == 1:  # it ended what is around it
        return [Ran("ended")]
    halves = [sent[: len(sent) // 2], sent[len(sent) // 2 :]]
    return [one for half in halves for one in await _ran(target, half, pool, limits, ticks)]


def _read(one: Any, target: CTarget) -> Ran:
    """A run from the driver's entry."""
    end, number, line, lines = one
    hit = frozenset(own for own in lines if own in target.parents)
    place = line if line in target.parents else 0
    if end == "signal":
        return Ran("crashed", SIGNALS.get(number, f"signal {number:d}"), place, hit)
    return Ran(end if end in ("returned", "hung") else "ended", "", place, hit)


SIGNALS: Final = {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV", 31: "SIGSYS"}
"""Names by number, as Linux has them."""
