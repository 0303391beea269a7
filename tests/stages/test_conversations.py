"""All turns of a conversation: masks exact to the token, and templates that change earlier turns."""

from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.stages.sft import demonstration
from posttrain.types import Message, Task

SAID = (
    Message(role="system", content="be brief"),
    Message(role="user", content="hi"),
    Message(role="assistant", content="<think>x</think>yo"),
    Message(role="user", content="again"),
    Message(role="assistant", content=""),
    Message(role="user", content="more"),
)
TASK = Task(key="k", prompt=SAID)
HEAD = "{% for m in messages %}<|{{ m['role'] }}|>"
END = "<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
PLAIN = HEAD + "{{ m['content'] }}" + END
SHORT = "{% if loop.last %}{{ m['content'] }}{% else %}{{ m['content'].split('</think>')[-1] }}{% endif %}"
STRIPS = HEAD + SHORT + END
"""Templates with a line end between turns, which no turn writes."""


def policy_with(folder: Path, template: str | None) -> Policy:
    made = new_folder(folder / "model", layers=1, width=16, heads=2, kv_heads=1, context=256)
    if template is not None:
        (made / "chat_template.jinja").write_text(template)
    return load_policy("policy", Model(source=str(made)), {}, torch.device("cpu"))


@pytest.mark.parametrize("template", [None, PLAIN], ids=["bundled", "with line ends"])
def test_what_precedes_each_turn_is_the_prompt_of_that_turn(tmp_path: Path, template: str | None) -> None:
    """Rendered prefix by prefix: nothing of the mask is off by a token."""
    policy = policy_with(tmp_path, template)
    tokenizer = policy.tokenizer
    made = demonstration(policy, TASK, "bye", turns="all")
    conversation = [*SAID, Message(role="assistant", content="bye")]
    expected = np.zeros(len(made.token_ids), bool)
    for place, message in enumerate(conversation):
        if message["role"] != "assistant":
            continue
        prompt = tokenizer.encode_chat(conversation[:place])
        reply = tokenizer.encode_completion(tuple(conversation[:place]), message["content"])
        begin, end = len(prompt), len(prompt) + len(reply)
        assert made.token_ids[:begin].tolist() == prompt.tolist()
        assert made.token_ids[begin:end].tolist() == reply.tolist()
        expected[begin:end] = True
    assert made.trained_positions.tolist() == np.flatnonzero(expected).tolist()
    trained = made.token_ids[made.trained_positions]
    assert tokenizer.decode(trained, special=True) == "<think>x</think>yo<|end|><|end|>bye<|end|>"
    assert [s.turn for s in made.segments if s.trained] == [0, 1, 2]


def test_the_last_turn_alone_is_the_default(tmp_path: Path) -> None:
    policy = policy_with(tmp_path, PLAIN)
    every, last = (demonstration(policy, TASK, "bye", turns=turns) for turns in ("all", "last"))  # type: ignore[arg-type]
    assert every.token_ids.tolist() == last.token_ids.tolist()
    assert policy.tokenizer.decode(last.token_ids[last.trained_positions], special=True) == "bye<|end|>"


def test_a_template_that_strips_thoughts_is_refused(tmp_path: Path) -> None:
    policy = policy_with(tmp_path, STRIPS)
    with pytest.raises(UserError, match="writes a conversation differently once it goes on, as where it leaves out"):
        demonstration(policy, TASK, "bye", turns="all")
    assert demonstration(policy, TASK, "bye").num_trained == len("bye") + 1


def test_a_conversation_beyond_the_context_is_refused(tmp_path: Path) -> None:
    policy = policy_with(tmp_path, None)
    with pytest.raises(UserError, match=r"task k: prompt \(\d+ tokens\) and demonstration \(3\d\d\) together pass"):
        demonstration(policy, TASK, "y" * 300, turns="all")
