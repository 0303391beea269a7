"""Reward functions with the signatures of TRL, verl, OpenRLHF, OpenAI's graders and verifiers, as they are."""

from dataclasses import replace

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.errors import UserError
from tests.components.rewards.judging import CHAT, ROW, Write, attempt, judge, score_all


class TestTRL:
    def test_texts_and_columns_come_as_lists(self, write: Write) -> None:
        reward = write(
            "def score(prompts, completions, completion_ids, level, **columns):\n"
            "    seen = (prompts, completions, completion_ids, level, sorted(columns))\n"
            "    columns['log_extra']('seen', [seen] * 2)\n"
            "    return [1.0 if c == a else 0.0 for c, a in zip(completions, columns['answer'])]\n"
        )
        scores = score_all(reward, attempt("42", ROW), attempt("so 43", ROW))
        assert [score.value for score in scores] == [1.0, 0.0]
        names = ["answer", "log_extra", "log_metric", "tests", "trainer_state"]
        seen = ([ROW.prompt] * 2, ["42", "so 43"], [[0], [0, 1]], [3, 3], names)
        assert [score.explanation for score in scores] == [f"seen: {seen}"] * 2

    def test_messages_come_as_messages(self, write: Write) -> None:
        reward = write(
            "def score(completions, prompts):\n"
            "    assert prompts[0][0] == {'role': 'system', 'content': 'Be brief.'}\n"
            "    assert completions[0][0]['role'] == 'assistant'\n"
            "    return [float(c[0]['content']) for c in completions]\n"
        )
        assert [s.value for s in score_all(reward, attempt("1", CHAT), attempt("2", CHAT))] == [1.0, 2.0]

    @pytest.mark.parametrize("name", ["answer", "solution", "ground_truth", "target", "label"])
    def test_the_answer_has_many_names(self, write: Write, name: str) -> None:
        reward = write(f"def score(completions, {name}):\n    return [c == a for c, a in zip(completions, {name})]\n")
        assert judge(reward, "42").status == "ok"

    def test_a_column_goes_before_the_answer(self, write: Write) -> None:
        task = replace(ROW, fields={"solution": "6 * 7 = 42"})
        reward = write("def score(completions, solution):\n    return [s == '6 * 7 = 42' for s in solution]\n")
        assert judge(reward, "42", task).status == "ok"

    def test_a_column_that_is_not_there_is_named(self, write: Write) -> None:
        score = judge(write("def score(completions, levl):\n    return [1.0]\n"), "42", ROW)
        assert score.status == "error"
        assert "there is no column 'levl' in the data; did you mean 'level'?" in score.explanation

    def test_none_is_not_applicable(self, write: Write) -> None:
        reward = write("def score(completions, **_):\n    return [None if c == 'x' else 1.0 for c in completions]\n")
        scores = score_all(reward, attempt("x"), attempt("y"))
        assert [score.status for score in scores] == ["error", "ok"]
        assert judge(write("def score(completions):\n    return None\n"), "x").explanation.startswith("not applicable")

    @pytest.mark.parametrize("result", ["[1.0]", "[1.0] * 3", "1.0", "'ab'", "{0: 1.0, 1: 1.0}"])
    def test_anything_but_one_number_each_is_an_error(self, write: Write, result: str) -> None:
        scores = score_all(write(f"def score(completions):\n    return {result}\n"), attempt("a"), attempt("b"))
        assert [score.status for score in scores] == ["error", "error"]

    def test_async_state_and_logs(self, write: Write) -> None:
        reward = write(
            "async def score(completions, trainer_state, log_extra, log_metric):\n"
            "    log_extra('length', [len(c) for c in completions])\n"
            "    log_extra('upper', [c.upper() for c in completions])\n"
            "    log_metric('mean', 1.5)\n"
            "    return [trainer_state.global_step + trainer_state.progress] * len(completions)\n"
        )
        context = RewardContext(step=3, progress=0.5)
        first, second = score_all(reward, attempt("a"), attempt("bb"), context=context)
        assert first.value == second.value == 3.5
        assert {name: part.value for name, part in second.parts.items()} == {"length": 2.0, "mean": 1.5}
        assert (first.explanation, second.explanation) == ("upper: A", "upper: BB")

    def test_a_wrong_log_is_an_error(self, write: Write) -> None:
        score = judge(write("def score(completions, log_extra):\n    log_extra('x', [1, 2])\n    return [1]\n"), "a")
        assert score.status == "error" and "log_extra('x') got 2 values for 1 completions" in score.explanation


class TestVerl:
    SOURCE = (
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return {'score': solution_str == ground_truth, 'source': data_source, 'info': extra_info}\n"
    )

    def test_gets_the_row(self, write: Write) -> None:
        row = {"data_source": "gsm8k", "reward_model": {"style": "rule", "ground_truth": "42"}, "extra_info": {"i": 1}}
        score = judge(write(self.SOURCE, "compute_score"), "42", replace(ROW, answer=None, fields=row))
        assert (score.value, score.explanation) == (1.0, "source: gsm8k; info: {'i': 1}")

    def test_gets_the_nearest_thing_from_other_data(self, write: Write) -> None:
        score = judge(write(self.SOURCE, "compute_score"), "42", ROW)
        assert (score.value, score.explanation) == (1.0, f"source: sums; info: {ROW.fields}")

    def test_may_take_a_few(self, write: Write) -> None:
        reward = write("def compute_score(solution_str, ground_truth, **rest):\n    return 1.0\n", "compute_score")
        assert judge(reward, "42").value == 1.0


class TestOpenRLHF:
    def test_a_group_in_one_call(self, write: Write) -> None:
        reward = write(
            "def reward_func(queries, prompts, labels):\n"
            "    assert all(q.startswith(p) for q, p in zip(queries, prompts))\n"
            "    right = [float(q[len(p):] == label) for q, p, label in zip(queries, prompts, labels)]\n"
            "    return {'rewards': right, 'scores': [r / 2 for r in right], 'extra_logs': {'calls': 1}}\n",
            name="reward_func",
        )
        scores = score_all(reward, attempt("42"), attempt("41"))
        assert [score.value for score in scores] == [1.0, 0.0]
        assert [score.parts["score"].value for score in scores] == [0.5, 0.0]
        assert scores[0].parts["calls"].value == 1.0

    def test_an_array_is_a_list(self, write: Write) -> None:
        source = "import numpy\ndef reward_func(queries, prompts, labels, **kwargs):\n    return numpy.arange(2.0)\n"
        scores = score_all(write(source, name="reward_func"), attempt("a"), attempt("b"))
        assert [score.value for score in scores] == [0.0, 1.0]


class TestOpenAI:
    def test_grade(self, write: Write) -> None:
        reward = write(
            "def grade(sample, item) -> float:\n"
            "    return float(sample['output_text'] == item['reference_answer'] and item['level'] == 3)\n",
            name="grade",
        )
        assert [judge(reward, text, ROW).value for text in ("42", "41")] == [1.0, 0.0]

    def test_json_and_messages(self, write: Write) -> None:
        reward = write(
            "def grade(sample: dict, item: dict):\n"
            "    assert sample['choices'][0]['message']['content'] == sample['output_text']\n"
            "    return sample['output_json']['x'] == 1 and item['messages'][0]['role'] == 'system'\n",
            name="grade",
        )
        assert judge(reward, '{"x": 1}', CHAT).value == 1.0


class TestVerifiers:
    @pytest.mark.parametrize(
        "parameters",
        [
            "completion, answer, state",
            "completion, answer, info, **rest",
            "completion: list[dict], answer",
            "completion, answer",
            "completion, answer, **kwargs",
        ],
    )
    def test_completions_are_messages(self, write: Write, parameters: str) -> None:
        reward = write(
            f"async def correct({parameters}) -> float:\n    return completion[-1]['content'] == answer\n", "correct"
        )
        assert [judge(reward, text, ROW).value for text in ("42", "41")] == [1.0, 0.0]

    def test_its_code_states_what_a_completion_is(self, write: Write) -> None:
        spoken = "def spoken(completion):\n    return sum(len(m['content']) for m in completion)\n"
        assert judge(write(spoken, "spoken"), "abc").value == 3.0
        parsed = (
            "import json\ndef parsed(completion, answer):\n    return json.loads(completion)['content'] == answer\n"
        )
        assert judge(write(parsed, "parsed"), '{"content": "42"}').value == 1.0, "text that the function itself reads"

    def test_what_is_given(self, write: Write) -> None:
        source = (
            "def seen(prompt, completion, answer, task, state, info):\n"
            "    assert prompt[0]['role'] == 'user' and state['completion'] == completion\n"
            "    return {'score': 1.0, 'seen': (answer, task, info['level'])}\n"
        )
        assert judge(write(source, "seen"), "42", ROW).explanation == "seen: ('42', 'sums', 3)"

    RUBRIC = (
        "class Rubric:\n"
        "    def __init__(self, funcs, weights):\n"
        "        self.funcs, self.weights, self.parser = funcs, weights, str.strip\n"
        "async def correct(completion, answer, parser):\n"
        "    return float(parser(completion[-1]['content']) == answer)\n"
        "def brief(completion, **kwargs):\n"
        "    return len(completion[-1]['content']) <= 2\n"
    )

    def test_a_rubric_is_a_weighted_sum(self, write: Write) -> None:
        reward = write(f"{self.RUBRIC}rubric = Rubric([correct, brief], [1.0, 0.5])\n", "rubric")
        scores = [judge(reward, text, ROW) for text in ("42", " 42 ", "41")]
        assert [score.value for score in scores] == [1.5, 1.0, 0.5]
        assert {name: part.value for name, part in scores[1].parts.items()} == {"correct": 1.0, "brief": 0.0}

    def test_a_function_of_groups_is_refused(self, write: Write) -> None:
        source = f"{self.RUBRIC}def best(completions):\n    return [1.0]\nrubric = Rubric([best], [1.0])\n"
        with pytest.raises(UserError, match="takes completions, so it scores a group"):
            write(source, "rubric").prepare()
