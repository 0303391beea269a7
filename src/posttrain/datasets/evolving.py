"""Tasks that are made of other tasks: what a model writes, what a rule writes for sums, and what is refused.

A born task is kept as JSON with its lineage: the key of the task that it was made of, who wrote it, the step and the
depth, the number of tasks between it and one of the data.
"""

import math
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from posttrain.datasets.keys import digest, problem
from posttrain.types import Message, Task

REQUEST: Final = """Rewrite the task below into a new one that is a little harder: add a constraint, ask for more \
depth, make something general concrete, or demand one more step of reasoning. It must make sense by itself.

{question}

Reply with the new task alone{answer}."""
"""What a model is prompted with. Placeholders: question, answer (a request for the answer, where tasks have one)."""
AND_ANSWER: Final = ", and after it a line 'Answer: ' with its answer"
_ANSWER: Final = re.compile(r"\n\s*Answer:[ \t]*(?P<answer>[^\n]+)\s*\Z", re.IGNORECASE)


def longer_or_shorter(task: Task, first: float, second: float) -> Mapping[str, Any]:
    """A sum with one more number or one less, by two draws in [0, 1); empty for other tasks.

    The last number is drawn, so that a sum that was made longer does not become its parent again.
    """
    expression = task.fields.get("expression")
    if not isinstance(expression, str) or not re.fullmatch(r"\d+([-+*]\d+)+", expression):
        return {}
    numbers, operators = re.findall(r"\d+", expression), re.findall(r"[-+*]", expression)
    kept = expression
    if first < 0.5 and len(numbers) > 2:
        kept = expression[: -len(operators[-2] + numbers[-2] + operators[-1] + numbers[-1])]
    largest = 10 ** max(map(len, numbers))
    made = f"{kept}{operators[int(second * len(operators))]}{int(second * largest)}"
    return {
        "prompt": f"Q: {made}\nA:",
        "answer": str(value(made)),
        "domain": f"{len(re.findall(r'[0-9]+', made))} numbers",
        "fields": {"expression": made},
    }


def value(expression: str) -> int:
    """The value of whole numbers with ``+-*`` between them, products first."""
    total = 0
    for sign, product in re.findall(r"(^|[-+])(\d+(?:\*\d+)*)", expression):
        total += (-1 if sign == "-" else 1) * math.prod(map(int, product.split("*")))
    return total


def read_reply(task: Task, reply: str) -> Mapping[str, Any]:
    """What a model wrote as the new task, in the form of the task that it was made of."""
    found = _ANSWER.search(reply)
    text = (reply[: found.start()] if found else reply).strip()
    prompt: Any = text
    if not isinstance(task.prompt, str):
        prompt = [*({**m} for m in task.prompt[:-1]), {**task.prompt[-1], "content": text}]
    answer = found["answer"].strip() if found else None
    return {"prompt": prompt, "answer": answer, "domain": task.domain, "fields": {}}


def fault(made: Mapping[str, Any], task: Task, known: AbstractSet[str], held_out: AbstractSet[str]) -> str:
    """Why a task that was written is refused, a phrase that is the same for all of its kind; empty if it is not.

    `known` and `held_out` are problems of tasks (`posttrain.datasets.keys.problem`).
    """
    if not made:
        return "no rule rewrites it"
    born = born_task(made)
    if not question(born).strip():
        return "empty"
    if problem(born) in held_out:
        return "held out"
    if problem(born) in known:
        return "repeated"
    if task.answer is not None and not (born.answer or "").strip():
        return "no answer"
    return ""


def born_task(made: Mapping[str, Any]) -> Task:
    """The task of its JSON."""
    prompt = made["prompt"]
    if not isinstance(prompt, str):
        prompt = tuple(Message(role=m["role"], content=m["content"]) for m in prompt)
    key = made.get("key") or digest("born", made["prompt"], made.get("answer"))
    return Task(
        key=key,
        prompt=prompt,
        answer=made.get("answer"),
        domain=str(made.get("domain", "")),
        fields={**made.get("fields", {}), **({"lineage": made["lineage"]} if "lineage" in made else {})},
    )


def made_of(task: Task) -> dict[str, Any]:
    """The JSON of a born task, its lineage included."""
    fields = {name: value for name, value in task.fields.items() if name != "lineage"}
    prompt = task.prompt if isinstance(task.prompt, str) else [{**message} for message in task.prompt]
    return {
        "key": task.key,
        "prompt": prompt,
        "answer": task.answer,
        "domain": task.domain,
        "fields": fields,
        "lineage": task.fields["lineage"],
    }


def question(task: Task) -> str:
    """The text of the last message, or all of it."""
    return task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
