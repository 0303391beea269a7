"""One way of scoring for every language; statuses that differ; the first failing test decides."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from posttrain.components.rewards import Reward
from posttrain.components.rewards.io_tests import IOTests
from posttrain.errors import UserError
from posttrain.grading.languages import Language, shipped_languages, verdict
from posttrain.sandbox import Limits, Result
from posttrain.types import Task
from tests.components.rewards.judging import judge
from tests.components.rewards.programs import tier_for

TESTS = [{"input": "1\n", "output": "2\n"}, {"input": "41", "output": "42"}]
TASK = Task(key="next", prompt="Print the next number.", fields={"tests": TESTS})
RIGHT = {
    "bash": "read a; echo $((a + 1))",
    "c": '#include <stdio.h>\nint main(void) { int a; scanf("%d", &a); printf("%d\\n", a + 1); }',
    "cpp": "#include <iostream>\nint main() { int a; std::cin >> a; std::cout << a + 1; }",
    "javascript": "console.log(parseInt(require('fs').readFileSync(0)) + 1)",
    "lua": "print(io.read('n') + 1)",
    "perl": "print <STDIN> + 1",
    "python": "print(int(input()) + 1)",
}
BROKEN = {"c": "int main(", "cpp": "int main(", "bash": "read a; exit 3"}
ROOMY = Limits(cpu_s=10.0, wall_s=120.0)


def reward_for(language: str, **settings: object) -> IOTests:
    text = shipped_languages()[language]
    commands = [line.split()[0] for line in (text.compile, text.run) if line and not line.startswith("./")]
    made = IOTests(language=language, limits=ROOMY, weakest=tier_for(*commands), **settings)  # type: ignore[arg-type]
    made.prepare()
    return made


def test_every_language_has_an_example() -> None:
    assert set(RIGHT) == set(shipped_languages())


@pytest.mark.slow
@pytest.mark.parametrize("language", sorted(RIGHT))
def test_the_same_tests_in_every_language(language: str) -> None:
    reward = reward_for(language, wrong_output=0.2, failed=-0.1)
    score = judge(reward, f"```\n{RIGHT[language]}\n```", TASK)
    assert (score.value, score.status) == (1.0, "ok"), score.explanation
    off_by_one = RIGHT[language].replace("1", "2")
    assert judge(reward, off_by_one, TASK).value == 0.2
    assert judge(reward, BROKEN.get(language, "((("), TASK).value == -0.1


def test_statuses_are_distinguished() -> None:
    reward = reward_for("bash")
    for code, said in {
        "echo 3": "test 1 of 2: prints '3' instead of '2'",
        "read a; [ $a = 1 ] && echo 2; exit 0": "test 2 of 2: prints '' instead of '42'",
        "exit 9": "ended with code 9",
    }.items():
        assert said in judge(reward, code, TASK).explanation
    slow = IOTests(language="bash", limits=Limits(cpu_s=0.3, wall_s=120.0), weakest=reward.weakest)
    assert "timeout_cpu" in judge(slow, "while :; do :; done", TASK).explanation


def test_a_language_of_ones_own_is_a_few_lines() -> None:
    mine = {"shout": {"file": "a.txt", "run": "cat a.txt"}}
    settings = {"kind": "io_tests", "language": "shout", "languages": mine, "weakest": tier_for()}
    reward = TypeAdapter(Reward).validate_python(settings)
    reward.prepare()
    task = Task(key="t", prompt="?", fields={"tests": [{"input": "", "output": "HELLO"}]})
    assert judge(reward, "HELLO\n\n", task).status == "ok"
    assert judge(reward, " HELLO", task).status == "wrong"


def test_a_task_may_name_its_language() -> None:
    reward = reward_for("bash")
    task = Task(key="t", prompt="?", fields={"tests": TESTS, "language": "perl"})
    tier_for("perl")
    assert judge(reward, RIGHT["perl"], task).status == "ok"
    assert judge(reward, "x", Task(key="t", prompt="?", fields={"tests": TESTS, "language": "cobol"})).status == "error"


@pytest.mark.parametrize("tests", [None, [], "x", [{"input": "a"}], [{"input": 1, "output": "2"}]])
def test_a_task_without_tests_is_an_error(tests: object) -> None:
    assert judge(reward_for("bash"), "echo", Task(key="t", prompt="?", fields={"tests": tests})).status == "error"


def test_what_is_missing_is_reported() -> None:
    weakest = tier_for()
    with pytest.raises(UserError, match="no language 'pyton'; did you mean 'python'"):
        IOTests(language="pyton", weakest=weakest).prepare()
    cobol = Language(file="a.cob", run="no-such-cobol a.cob", package="gnucobol")
    with pytest.raises(UserError, match=r"no-such-cobol is not installed.*apt install gnucobol"):
        IOTests(language="cobol", languages={"cobol": cobol}, weakest=weakest).prepare()


def test_space_at_the_end_does_not_count_and_at_the_start_does() -> None:
    assert verdict(Result(outcome="ok", stdout=b"a \n\n"), "a") == "passes"
    assert verdict(Result(outcome="ok", stdout=b"a"), "a\n") == "passes"
    for printed in (b" a", b"A", b"a\n b", b"\xff", b""):
        assert "instead of" in verdict(Result(outcome="ok", stdout=printed), "a")
    assert verdict(Result(outcome="memory", explanation="much"), "a") == "memory (much)"


def test_the_data_file_ships_beside_the_code() -> None:
    import posttrain.grading

    assert Path(posttrain.grading.__file__).with_name("languages.yaml").exists()
