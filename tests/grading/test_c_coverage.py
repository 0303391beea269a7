"""Lines of a C function that inputs reach, by gcov; crashes, hangs and what is refused."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.errors import UserError
from posttrain.grading.c_coverage import PROGRAMS, CTarget, c_target_of, run_c_calls
from posttrain.grading.c_source import read_source
from posttrain.grading.line_coverage import Ran
from posttrain.runs.fuzzing import Session, found, fuzz
from posttrain.sandbox import Limits, open_pool
from tests.components.rewards.programs import tier_for

SOURCE = r"""#include <stdlib.h>
#include <string.h>
#define LIMIT 3 /* } */
static int down(int n) {
    while (n)
        n -= 1;
    return n;
}
int parse(const char *text) {
    if (text[0] == '=') {
        if (text[1] == '{')
            abort();
        return 2;
    } else if (text[0] == 'h')
        return down(-1);
    for (int i = 0; i < LIMIT; i++) {
        down(i);
    }
    switch (text[0]) {
    case 'q':
        exit(3);
    case 'd':
        return parse(text) + 1;
    }
    return (int) strlen(text);
}
int raw(const unsigned char *data, size_t size) {
    return size > 2 && data[0] == 0 ? *(volatile int *) (size_t) data[1] : 0;
}
double numbers(int a, unsigned char b, double c) {
    if (a == 12 && b >= 250)
        return 1;
    return c;
}
void pointers(int **a) { }
int main(void) { return 0; }
"""


def test_a_file_is_read_without_the_preprocessor() -> None:
    own = read_source(SOURCE)
    assert list(own.functions) == ["down", "parse", "raw", "numbers", "pointers", "main"]
    assert [(one.name, one.kind, one.low, one.high) for one in own.functions["numbers"]] == [
        ("a", "whole", -(2**31), 2**31 - 1),
        ("b", "whole", 0, 255),
        ("c", "real", 0, 0),
    ]
    assert own.guards[6] == "n" and own.parents[6] == 5 and own.parents[5] is None
    assert own.guards[12] == "text[0]=='=' text[1]=='{'" and own.parents[12] == 11 and own.parents[11] == 10
    assert own.guards[15] == "not(text[0]=='=') text[0]=='h'" and own.guards[17] == "i<LIMIT"
    assert own.guards[21] == "" and own.parents[21] == 19
    assert {b"=", b"{", 12, 250} <= set(own.constants.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int f(int a) { if (a { return 1; }", "the bracket in line 1 is not closed"),
        ("int f(int a) {" + "if (a) " * 300 + ";}", "nested more than 200 deep"),
        ("int f(int a) {" + "{" * 5000 + "}" * 5000 + "}", "nested more than 200 deep"),
    ],
)
def test_files_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_source(text)


@cache
def target(function: str) -> CTarget:
    tier_for(*PROGRAMS)
    return asyncio.run(c_target_of(SOURCE, function, open_pool()))


def ran(function: str, *given: Any, ticks: int = 10_000) -> Sequence[Ran]:
    inputs = [own if isinstance(own, tuple) else (own,) for own in given]
    return asyncio.run(run_c_calls(target(function), inputs, open_pool(), Limits(cpu_s=2.0), ticks))


@pytest.mark.slow
def test_ends_and_lines_of_a_text() -> None:
    runs = ran("parse", b"x", b"={", b"=", b"h", b"q", b"d", b"x\0={")
    assert [(run.end, run.error) for run in runs] == [
        ("returned", ""),
        ("crashed", "SIGABRT"),
        ("returned", ""),
        ("hung", ""),
        ("returned", ""),
        ("hung", ""),
        ("returned", ""),
    ]
    assert runs[0].lines == {4, 5, 6, 7, 9, 10, 14, 16, 17, 19, 25} == runs[6].lines, "a text ends at its first zero"
    assert runs[1].lines == {9, 10, 11, 12} and runs[1].line in (11, 12)
    assert {5, 6, 15} <= runs[3].lines and runs[3].line in (5, 6)
    assert 21 in runs[4].lines and {22, 23} <= runs[5].lines, "counters are written at exit, and after an overflow"
    assert ran("parse", b"h")[0] == runs[3], "the same input ends in the same line"


@pytest.mark.slow
def test_bytes_and_numbers() -> None:
    assert [run.end for run in ran("raw", b"", b"\0\1\2", b"\1\1\2")] == ["returned", "crashed", "returned"]
    runs = ran("numbers", (12, 250, 0.5), (12, 256, 0.5), (12,), ("12", 1, 1), (12, 1, 10**400), (1.0, 1, 1))
    assert [run.end for run in runs] == ["returned", *["refused"] * 3, "returned", "refused"]
    assert 32 in runs[0].lines and 33 in runs[4].lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "source", "message"),
    [
        ("none", SOURCE, "no function 'none' in the file; functions there: down, parse, raw"),
        ("pointers", SOURCE, r"pointers takes \(int \* \* a\); a target takes one text"),
        ("f", "int f(int a) { return b; }", "the file cannot be compiled: .*'b' undeclared"),
    ],
)
def test_what_is_no_target(function: str, source: str, message: str) -> None:
    tier_for(*PROGRAMS)
    with pytest.raises(UserError, match=message.replace("'b'", ".b.")):
        asyncio.run(c_target_of(source, function, open_pool()))


@pytest.mark.slow
def test_a_session_keeps_crashes_and_hangs_apart_and_is_repeatable(tmp_path: Path) -> None:
    own = Session(target=target("parse"), folder=tmp_path / "a", pool=open_pool(), form="bytes", ticks=5000)
    state = fuzz(own, 160, lambda _: None)
    result = found(own, state)
    assert {one["end"] for one in result["crashes"]} <= {"SIGABRT"} and result["hangs"], "h is among the constants"
    assert 15 not in result["not_covered"]
    other = replace(own, folder=tmp_path / "b")
    assert fuzz(other, 160, lambda _: None) == state


@pytest.mark.slow
def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tier_for(*PROGRAMS)
    monkeypatch.chdir(tmp_path)
    Path("target.c").write_text(
        "void abort(void);\nint f(int a) {\n    if (a == 777)\n        abort();\n    return a;\n}\n"
    )
    assert main(["fuzz", "target.c:f", "--budget", "96"]) == 1
    assert "crash: SIGABRT after line" in (printed := capfd.readouterr().out) and "'777'" in printed
    assert main(["fuzz", "target.c:f", "--form", "str"]) == 2
    assert "f takes literals by its declaration; leave out --form" in capfd.readouterr().err
