"""The demonstrated programs print what the tests of their tasks say."""

import shutil
import subprocess
from typing import Any

import pytest

from posttrain.components.tasks.programs import Programs

RUN = {"bash": ["bash", "-c"], "lua": ["lua", "-e"], "perl": ["perl", "-e"], "python": ["python3", "-c"]}


@pytest.mark.parametrize("language", RUN)
@pytest.mark.slow
def test_demonstrations_are_right(language: Any) -> None:
    if shutil.which(RUN[language][0]) is None:
        pytest.skip(f"{RUN[language][0]} is not installed")
    for task in list(Programs(languages=(language,)).load())[:8]:
        [program] = task.demonstrations
        for test in task.fields["tests"]:
            done = subprocess.run([*RUN[language], program], input=test["input"], text=True, capture_output=True)
            assert done.stdout.strip() == test["output"].strip(), (program, test, done.stderr)


def test_products_come_first() -> None:
    by_prompt = {task.prompt: task for task in Programs(languages=("bash",), terms=3).load()}
    task = by_prompt["Bash: a+b*b\n"]
    for test in task.fields["tests"]:
        a, b = map(int, test["input"].split())
        assert int(test["output"]) == a + b * b
