"""The side of `bfcl` that runs in the Python of bfcl-eval, as a script: orders and answers are lines of JSON."""

import copy
import importlib
import json
import sys
from pathlib import Path
from typing import Any

TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}


class Dialogues:
    """The dialogues of a category, one at a time."""

    def __init__(self, category: str) -> None:
        package = importlib.import_module("bfcl_eval")
        base = "bfcl_eval.eval_checker.multi_turn_eval"
        self.config = importlib.import_module("bfcl_eval.constants.executable_backend_config")
        self.checker = importlib.import_module(f"{base}.multi_turn_checker")
        self.running = importlib.import_module(f"{base}.multi_turn_utils")
        self.long = "long_context" in category
        self.data = Path(str(package.__file__)).parent / "data"
        own, gold = (self.read(f"{folder}BFCL_v4_{category}.json") for folder in ("", "possible_answer/"))
        answers = {row["id"]: row["ground_truth"] for row in gold}
        self.tasks = {row["id"]: (row, answers[row["id"]]) for row in own}
        self.count = 0

    def read(self, name: str) -> list[dict[str, Any]]:
        """Rows of a file of the package. Raises `ImportError` where it is not there."""
        try:
            text = (self.data / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ImportError(f"bfcl_eval has no file data/{name}") from None
        return [json.loads(line) for line in text.splitlines() if line]

    def ready(self) -> int:
        """The number of dialogues."""
        return len(self.tasks)

    def reset(self, seed: int, task_id: str | None) -> dict[str, Any]:
        """Start one."""
        self.row, self.gold = self.tasks[task_id or list(self.tasks)[seed % len(self.tasks)]]
        self.made = {name: self.instance(name) for name in self.row["involved_classes"]}
        self.results: list[str] = []
        self.place, self.right, self.called = 0, True, False
        self.count += 1
        names = self.config.MULTI_TURN_FUNC_DOC_FILE_MAPPING
        docs = [doc for own in self.made for doc in self.read(f"multi_turn_func_doc/{names[own]}")]
        hidden = self.row.get("excluded_function", [])
        requests = ["\n".join(message["content"] for message in turn) for turn in self.row["question"]]
        return {"tools": [plain(d) for d in docs if d["name"] not in hidden], "requests": requests, "gold": self.gold}

    def instance(self, name: str) -> Any:
        """An API in the state of the dialogue."""
        made = getattr(importlib.import_module(self.config.CLASS_FILE_PATH_MAPPING[name]), name)()
        if name not in self.config.STATELESS_CLASSES:
            made._load_scenario(copy.deepcopy(self.row["initial_config"].get(name, {})), long_context=self.long)
        return made

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a public method."""
        owner = next(own for own in self.made.values() if not name.startswith("_") and hasattr(own, name))
        self.called = True
        try:
            found = getattr(owner, name)(**arguments)
            text = written(found)
        except Exception as error:
            text = f"Error during execution: {error}"
        self.results.append(text)
        return text

    def turn(self) -> bool:
        """Compare with the reference calls of a request, and go to the next one."""
        wanted, self.place = self.gold[self.place], self.place + 1
        name = f"reference_{self.count}"
        found, other = self.running.execute_multi_turn_func_call(
            wanted, self.row["initial_config"], list(self.made), name, self.row["id"], long_context=self.long
        )
        if wanted:
            state = self.checker.state_checker(self.made, other)["valid"]
            answers = self.checker.response_checker(self.results, found, self.place)["valid"]
            self.right = bool(self.right and self.called and state and answers)
        self.called = False
        return self.right

    def value(self) -> float:
        """Whether all requests were met."""
        return float(self.right and self.place == len(self.gold))


def written(found: Any) -> str:
    """An answer as text, as the package writes it: logarithms are numbers that JSON lacks."""
    if isinstance(found, dict):
        try:
            return json.dumps(found)
        except TypeError:
            return str(found)
    return str(found)


def plain(schema: Any) -> Any:
    """A description with types by the names of JSON schemas, without the answer's."""
    if isinstance(schema, dict):
        own = {name: plain(value) for name, value in schema.items() if name != "response"}
        return {**own, "type": TYPES[own["type"]]} if isinstance(own.get("type"), str) and own["type"] in TYPES else own
    return [plain(value) for value in schema] if isinstance(schema, list) else schema


def main() -> None:
    """Answer orders until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    made: Dialogues | None = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            made = made or Dialogues(sys.argv[1])
            answer = {"value": getattr(made, order.pop("order"))(**order)}
        except ImportError as error:
            answer = {"missing": str(error)}
        except TypeError as error:
            answer = {"misfit": str(error)}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
