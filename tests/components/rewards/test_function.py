"""Functions of one's own as rewards."""

import asyncio
import hashlib
import pickle
import sys
from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from posttrain.components.rewards import Reward
from posttrain.components.rewards.function import Function
from posttrain.errors import UserError
from posttrain.types import Score
from tests.components.rewards.judging import CHAT, ROW, SUM, Write, attempt, judge, score_all


class TestPlain:
    @pytest.mark.parametrize(
        ("parameters", "seen"),
        [
            ("completion, task", ("42", ROW)),
            ("task, completion", (ROW, "42")),
            ("completion, answer", ("42", "42")),
            ("completion, prompt", ("42", ROW.prompt)),
            ("completion, fields", ("42", ROW.fields)),
            ("completion, columns", ("42", ROW.fields)),
            ("completion", ("42",)),
            ("text", ("42",)),
            ("text, /", ("42",)),
            ("text, answer='none'", ("42", "42")),
            ("completion, /, answer", ("42", "42")),
            ("completion, *, task", ("42", ROW)),
            ("completion, limit=5", ("42", 5)),
            ("task", (ROW,)),
        ],
    )
    def test_gets_what_it_names(self, write: Write, parameters: str, seen: tuple[Any, ...]) -> None:
        names = [p.split("=")[0].strip() for p in parameters.split(",") if p.strip() not in "/*"]
        source = f"def score({parameters}):\n    return {{'score': 1.0, 'seen': ({', '.join(names)},)}}\n"
        score = judge(write(source), "42", ROW)
        assert (score.value, score.explanation) == (1.0, f"seen: {seen}")

    def test_may_take_everything(self, write: Write) -> None:
        reward = write("def score(**everything):\n    return {'score': 1, 'seen': sorted(everything)}\n")
        names = ["answer", "columns", "completion", "fields", "prompt", "task", "trajectory"]
        assert judge(reward, "42", ROW).explanation == f"seen: {names}"

    def test_settings_are_passed_by_keyword(self, write: Write) -> None:
        reward = write(
            "def score(completion, longest):\n    return len(completion) <= longest\n", arguments={"longest": 2}
        )
        assert [judge(reward, text).value for text in ("42", "420")] == [1.0, 0.0]

    def test_a_message_prompt_is_a_copy(self, write: Write) -> None:
        reward = write("def score(completion, prompt):\n    prompt[0]['content'] = 'gone'\n    return len(prompt)\n")
        assert judge(reward, "42", CHAT).value == 2.0
        assert CHAT.prompt[0]["content"] == "Be brief."

    def test_async_functions_run_in_parallel_and_stay_in_order(self, write: Write) -> None:
        reward = write(
            "import asyncio\nstarted = []\n"
            "async def score(completion):\n"
            "    started.append(completion)\n"
            "    while len(started) < 3:\n        await asyncio.sleep(0)\n"  # ends only if all have started
            "    return float(completion)\n"
        )
        scores = score_all(reward, *(attempt(text) for text in ("3", "1", "2")))
        assert [score.value for score in scores] == [3.0, 1.0, 2.0]


class TestResults:
    @pytest.mark.parametrize(
        ("result", "value", "status"),
        [
            ("1.0", 1.0, "ok"),
            ("True", 1.0, "ok"),
            ("False", 0.0, "wrong"),
            ("0.5", 0.5, "wrong"),
            ("2", 2.0, "ok"),
            ("np.float32(1)", 1.0, "ok"),
            ("np.array([0.25])", 0.25, "wrong"),
            ("np.bool_(True)", 1.0, "ok"),
            ("fractions.Fraction(1, 4)", 0.25, "wrong"),
            ("decimal.Decimal('1.5')", 1.5, "ok"),
            ("{'score': 1.0}", 1.0, "ok"),
            ("{'value': 0}", 0.0, "wrong"),
            ("Score(value=0.2, status='ok')", 0.2, "ok"),
        ],
    )
    def test_scores(self, write: Write, result: str, value: float, status: str) -> None:
        score = judge(write(f"{IMPORTS}def score(completion):\n    return {result}\n"), "42")
        assert (score.value, score.status) == (value, status)
        assert type(score.value) is float

    @pytest.mark.parametrize(
        ("result", "why"),
        [
            ("None", "not applicable: the function returned None"),
            ("float('nan')", "returned nan"),
            ("float('inf')", "returned inf"),
            ("10**400", "returned inf"),
            ("'1.0'", "a str; it must return a number"),
            ("[1.0]", "a list; it must return a number"),
            ("1j", "a complex"),
            ("np.zeros(2)", "a ndarray"),
            ("[10**5000]", "list that cannot be written: ValueError"),
            ("{'reward': 1.0}", "a dict without 'score' or 'value'; it has \"'reward'\""),
            ("{'score': None}", "not applicable"),
            ("{'score': {}}", "itself a dict"),
            ("{'score': float('nan')}", "returned nan"),
            ("Score(value=float('nan'), status='ok')", "a Score of 'nan' with status \"'ok'\""),
            ("Score(value=1.0, status='good')", "status \"'good'\""),
            ("Score(value=1.0, status='error', explanation='no judge')", "no judge"),
        ],
    )
    def test_anything_else_is_an_error(self, write: Write, result: str, why: str) -> None:
        score = judge(write(f"{IMPORTS}def score(completion):\n    return {result}\n"), "42")
        assert score.status == "error" and isnan(score.value)
        assert why in score.explanation

    def test_a_dict_keeps_its_other_entries(self, write: Write) -> None:
        source = (
            "{'score': 0.5, 'acc': True, 'fmt': False, 'length': 7, 'bad': float('inf'), 'pred': '41', 'why': 'close'}"
        )
        score = judge(write(f"def score(completion):\n    return {source}\n"), "42")
        assert (score.value, score.status, score.answer) == (0.5, "wrong", "41")
        parts = {name: (part.value, part.status) for name, part in score.parts.items()}
        assert parts == {"acc": (1.0, "ok"), "fmt": (0.0, "wrong"), "length": (7.0, "ok")}
        assert score.explanation == "bad: inf; pred: 41; why: close"

    def test_correct_at(self, write: Write) -> None:
        reward = write("def score(completion):\n    return float(completion)\n", correct_at=0.5)
        assert [judge(reward, text).status for text in ("0.49", "0.5", "1")] == ["wrong", "ok", "ok"]


IMPORTS = "import decimal, fractions\nimport numpy as np\nfrom posttrain.types import Score\n"


class TestRaising:
    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ("int('x')", "ValueError: invalid literal for int() with base 10: 'x' (mine.py line 2: return int('x'))"),
            ("exit()", "SystemExit"),
            ("{}['a']", "KeyError: 'a' (mine.py line 2"),
            ("(lambda: (yield))().throw(BaseException('late'))", "BaseException: late (mine.py line 2"),
            ("score(completion)", "RecursionError"),
        ],
    )
    def test_is_an_error_with_its_line(self, write: Write, body: str, why: str) -> None:
        score = judge(write(f"def score(completion):\n    return {body}\n"), "42")
        assert score.status == "error" and isnan(score.value)
        assert why in score.explanation

    def test_one_that_raises_does_not_hide_the_others(self, write: Write) -> None:
        reward = write("def score(completion):\n    return float(completion)\n")
        scores = score_all(reward, attempt("1"), attempt("x"), attempt("0"))
        assert [score.status for score in scores] == ["ok", "error", "wrong"]

    def test_the_line_is_the_users_also_inside_a_library(self, write: Write) -> None:
        score = judge(write("import json\ndef score(completion):\n    x = 1\n    return json.loads(completion)\n"), "{")
        assert "JSONDecodeError" in score.explanation
        assert "(mine.py line 4: return json.loads(completion))" in score.explanation

    @pytest.mark.parametrize("raised", ["KeyboardInterrupt", "asyncio.CancelledError"])
    def test_an_interruption_is_none_of_its_business(self, write: Write, raised: str) -> None:
        reward = write(f"import asyncio\ndef score(completion):\n    raise {raised}\n", time_limit=None)
        with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
            judge(reward, "42")


class TestLoading:
    def test_from_text_as_on_the_command_line(self, write: Write) -> None:
        expected = write("def score(completion):\n    return 1.0\n", time_limit=60.0)
        reward = TypeAdapter(Reward).validate_python("./mine.py:score")
        assert reward == expected and judge(reward, "42").value == 1.0

    @pytest.mark.parametrize("path", ["mine.py", "mine.py:", ":score", "mine.py:not a name"])
    def test_a_path_that_is_none(self, path: str) -> None:
        with pytest.raises(ValidationError, match=r"written file\.py:name or package\.module:name"):
            Function(path=path)

    @pytest.mark.parametrize(
        ("source", "name", "message"),
        [
            ("def score(completion): ...", "scor", "no function 'scor' in .*; did you mean 'score'"),
            ("score = 3", "score", "'score' is no function, its type is int"),
            ("x = (", "score", r"does not run: SyntaxError: '\(' was never closed \(mine.py line 1: x = \(\)"),
            ("a = 1\nb = a / 0\n", "score", r"ZeroDivisionError: division by zero \(mine.py line 2: b = a / 0\)"),
            ("import no_such_thing\n", "score", r"No module named 'no_such_thing' \(mine.py line 1"),
            ("exit()", "score", "does not run: SystemExit"),
        ],
    )
    def test_a_file_that_does_not_do(self, write: Write, source: str, name: str, message: str) -> None:
        with pytest.raises(UserError, match=message):
            write(source, name).prepare()

    def test_a_file_that_is_not_there(self, write: Write) -> None:
        write("def score(completion): ...")
        with pytest.raises(UserError, match=r"no file .*mein\.py \(working in .*\); did you mean 'mine\.py'"):
            Function(path="mein.py:score").prepare()

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ("completion, anwser", "there is no value for 'anwser'; did you mean 'answer'"),
            ("a, b", "there is no value for 'a'"),
            ("solution_str, truth", "there is no value for 'truth'; did you mean 'ground_truth'"),
            ("", "takes no parameters, so it could not see what it scores."),
        ],
    )
    def test_a_signature_that_fits_nothing_states_what_would(self, write: Write, parameters: str, message: str) -> None:
        with pytest.raises(UserError) as error:
            write(f"def score({parameters}):\n    return 1.0\n").prepare()
        assert message in str(error.value)
        assert "as for TRL, prompts, completions" in str(error.value)

    def test_a_setting_that_the_function_does_not_take(self, write: Write) -> None:
        reward = write("def score(completion, longest=3):\n    return 1.0\n", arguments={"longst": 2})
        with pytest.raises(UserError, match="'longst', which is no parameter of the function; did you mean 'longest'"):
            reward.prepare()

    def test_what_lies_beside_a_file_can_be_imported_by_it_alone(self, write: Write, tmp_path: Path) -> None:
        (tmp_path / "beside_it.py").write_text("VALUE = 0.5\n")
        path = list(sys.path)
        reward = write("import beside_it\ndef score(completion):\n    return beside_it.VALUE\n")
        assert judge(reward, "42").value == 0.5
        assert sys.path == path and "beside_it" not in sys.modules

    def test_modules_on_the_import_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "my_module_of_rewards.py").write_text("def score(completion):\n    return 0.5\n")
        reward = Function(path="my_module_of_rewards:score")
        assert judge(reward, "42").value == 0.5
        assert list(reward.fingerprint) == ["my_module_of_rewards.py"]
        with pytest.raises(UserError, match="no module 'my_modul' on the import path"):
            Function(path="my_modul:score").prepare()

    def test_a_dataclass_in_the_file_works(self, write: Write) -> None:
        reward = write(
            "from __future__ import annotations\nfrom dataclasses import dataclass\n"
            "@dataclass\nclass Found:\n    value: int\n"
            "def score(completion):\n    return Found(int(completion)).value\n"
        )
        assert judge(reward, "42").value == 42.0


class TestRecord:
    def test_the_fingerprint_is_of_the_bytes_that_run(self, write: Write, tmp_path: Path) -> None:
        reward = write("def score(completion):\n    return 1.0\n")
        digest = hashlib.sha256((tmp_path / "mine.py").read_bytes()).hexdigest()
        assert reward.fingerprint == {"mine.py": digest}
        (tmp_path / "mine.py").write_text("def score(completion):\n    return 0.0\n")
        assert judge(reward, "42").value == 1.0, "a run keeps the function that it began with"
        assert reward.fingerprint == {"mine.py": digest}
        changed = replace(reward)
        assert judge(changed, "42").value == 0.0
        assert changed.fingerprint != reward.fingerprint

    def test_a_copy_in_another_process_loads_its_own(self, write: Write) -> None:
        reward = write("def score(completion):\n    return 1.0\n")
        reward.prepare()
        copy = pickle.loads(pickle.dumps(reward))
        assert copy == reward and judge(copy, "42").value == 1.0

    def test_results_do_not_depend_on_what_a_function_does_to_its_arguments(self, write: Write) -> None:
        reward = write("def score(completion, fields):\n    fields['level'] = 9\n    return 1.0\n")
        judge(reward, "42", ROW)
        assert ROW.fields["level"] == 3

    def test_the_types_of_a_score_hold(self, write: Write) -> None:
        score = judge(write("def score(completion):\n    return {'score': 1, 'answer': 42}\n"), "42", SUM)
        assert isinstance(score, Score) and isinstance(score.parts, Mapping) and score.answer == "42"


class TestLimits:
    """A function that misbehaves costs its own score: an error with the reason, never a wrong answer."""

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ("while True: pass", "timeout_cpu"),
            ("9 ** (9 ** 9)", "timeout_cpu"),
            ("import os; os._exit(0)", "crashed"),
            ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
            ("bytearray(10 ** 11)", "MemoryError"),
        ],
    )
    def test_only_the_score_is_lost(self, write: Write, body: str, why: str, time_limit: float | None) -> None:
        if time_limit is None:
            pytest.skip("nothing limits a function in the run's own process")
        reward = write(
            f"def score(completion):\n    if completion == 'bad':\n        {body}\n    return float(completion)\n",
            time_limit=0.5,
        )
        scores = score_all(reward, attempt("1"), attempt("bad"), attempt("0"), attempt("2"))
        assert [score.status for score in scores] == ["ok", "error", "wrong", "ok"]
        assert why in scores[1].explanation and isnan(scores[1].value)

    def test_waiting_is_limited_too(self, write: Write, time_limit: float | None) -> None:
        if time_limit is None:
            pytest.skip("nothing limits a function in the run's own process")
        reward = write("import time\ndef score(completion):\n    time.sleep(300)\n", time_limit=0.05)
        assert "timeout_wall" in judge(reward, "42").explanation

    def test_a_module_that_changed_is_not_loaded_again(
        self, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time_limit: float | None
    ) -> None:
        monkeypatch.syspath_prepend(tmp_path)
        if time_limit is None:
            pytest.skip("loaded once, in the run's own process")
        module = tmp_path / "module_that_changes.py"
        module.write_text(
            "import os\ndef score(completion):\n    os._exit(1) if completion == 'x' else 0\n    return 1.0\n"
        )
        reward = Function(path="module_that_changes:score", workers=1)
        assert judge(reward, "42").value == 1.0
        module.write_text("def score(completion):\n    return 0.0\n")
        assert judge(reward, "x").status == "error"
        score = judge(reward, "42")
        assert score.status == "error" and "was changed since the run began" in score.explanation

    def test_columns_that_cannot_be_sent_are_named(self, write: Write, time_limit: float | None) -> None:
        odd = replace(ROW, fields={"odd": object()})
        score = judge(write("def score(completion):\n    return 1.0\n"), "42", odd)
        if time_limit is None:
            assert score.value == 1.0
        else:
            assert score.status == "error" and "builtins.object cannot be sent" in score.explanation
