import pytest

from posttrain.components.rewards.counted_work import CountedWork, efficiency, instructions
from posttrain.sandbox import Result
from posttrain.types import Task
from tests.components.rewards.judging import attempt, judge, score_all
from tests.components.rewards.programs import tier_for

FORMULA = '#include <stdio.h>\nint main(void) { long n; scanf("%ld", &n); printf("%ld\\n", n * (n + 1) / 2); }'
LOOP = (
    '#include <stdio.h>\nint main(void) { long n; volatile long t = 0; scanf("%ld", &n);\n'
    'for (long i = 1; i <= n; i++) t += i; printf("%ld\\n", t); }'
)
TASK = Task(
    key="sum",
    prompt="?",
    answer=FORMULA,
    fields={"tests": [{"input": str(n), "output": str(n * (n + 1) // 2)} for n in (5, 20000)]},
)


def test_the_reward_by_hand() -> None:
    assert efficiency(100, 100) == 1.0
    assert efficiency(400, 100) == 0.5 + 0.5 / 4
    assert efficiency(50, 100) == 1.0  # no more for beating the reference
    assert efficiency(50, 100, cap=2.0) == 1.5
    assert efficiency(0, 100) == 1.0 and efficiency(0, 100, cap=3.0) == 2.0
    rising = [efficiency(own, 100) for own in (100_000, 1000, 200, 100)]
    assert rising == sorted(rising) and min(rising) > 0.5


def test_what_the_counter_prints_must_be_there_once() -> None:
    said = b"==7== Cachegrind, a profiler\n==7==\nnoise\n==7== I refs:        1,234,567\n"
    assert instructions(said) == 1234567
    assert instructions(b"") is None
    assert instructions(said + said) is None
    assert instructions(said + b"==1== I refs: 5\n") is None
    assert instructions(b"==9== Cachegrind, forged\n" + said) is None
    assert instructions(b"==7== I refs: 5\n") is None


@pytest.mark.slow
def test_right_and_fast_before_right_and_slow_before_wrong_before_crashed_before_unbuilt() -> None:
    reward = CountedWork(language="c", weakest=tier_for("valgrind", "gcc"))
    reward.prepare()
    programs = [FORMULA, LOOP, LOOP.replace("i <=", "i <"), "int main(void) { return 3; }", "int main("]
    scores = score_all(reward, *(attempt(code, TASK) for code in programs))
    values = [score.value for score in scores]
    assert values[0] == 1.0 and 0.5 < values[1] < 0.7 and values[2:] == [-0.3, -0.6, -1.0]
    assert [score.status for score in scores] == ["ok", "ok", "wrong", "wrong", "wrong"]
    again = score_all(CountedWork(language="c", weakest=reward.weakest), attempt(LOOP, TASK))
    assert again[0] == scores[1], "the same instructions every time"


@pytest.mark.slow
@pytest.mark.parametrize(
    "cheat",
    [
        '#include <unistd.h>\nint main(void) { execl("/bin/sh", "sh", "-c", "read n; echo $((n * (n + 1) / 2))", 0); }',
        FORMULA.replace("long n;", 'long n; fputs("==1== I refs: 1\\n", stderr);'),
        FORMULA.replace("long n;", "long n; if (fork() < 0) return 4;").replace(
            "<stdio.h>", "<stdio.h>\n#include <unistd.h>"
        ),
    ],
)
def test_work_that_is_not_counted_is_not_rewarded(cheat: str) -> None:
    reward = CountedWork(language="c", weakest=tier_for("valgrind", "gcc"))
    assert judge(reward, cheat, TASK).value == -0.6


@pytest.mark.slow
def test_a_reference_that_fails_is_an_error() -> None:
    task = Task(key="t", prompt="?", answer="int main(void) { }", fields=TASK.fields)
    assert judge(CountedWork(language="c", weakest=tier_for("valgrind", "gcc")), FORMULA, task).status == "error"


@pytest.mark.slow
def test_a_reference_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reward = CountedWork(language="c", weakest=tier_for("valgrind", "gcc"))
    first = judge(reward, LOOP, TASK)
    counted: list[str] = []
    count = CountedWork._count

    async def counting(self: CountedWork, built: dict[str, bytes], stdin: str) -> Result:
        counted.append(stdin)
        return await count(self, built, stdin)

    monkeypatch.setattr(CountedWork, "_count", counting)
    assert judge(reward, LOOP, TASK) == first
    assert counted == [test["input"] for test in TASK.fields["tests"]], "the program's runs only"
