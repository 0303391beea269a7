"""Chat templates are pure functions that take little, or they are refused."""

import pickle
from typing import Any

import pytest

from benchmarks._hostile_templates import TEMPLATES
from posttrain.errors import UserError
from posttrain.policies._templates import ChatTemplate

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "2+3="}], "add_generation_prompt": True}
SLOW = {
    "nested ranges", "nested ranges that write", "power", "power of a variable", "numbers doubling",
    "nested lists doubling", "slice", "plus doubling", "replace", "join doubling", "concatenation doubling",
    "word wrap", "set block doubling",
}  # fmt: skip
"""Those that end with their time, a second of it."""


def render(source: str, **values: Any) -> str:
    return ChatTemplate(source, "mine", "2026-01-01").render(CHAT | values)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in TEMPLATES]
)
def test_what_takes_too_much_is_refused(name: str) -> None:
    if name == "a number of digits":
        assert render(TEMPLATES[name]) == "1.5"
        return
    with pytest.raises(UserError, match="the chat template of 'mine'") as refusal:
        render(TEMPLATES[name])
    text = str(refusal.value)
    assert text.isprintable() and len(text) < 500, "one line, and no control characters"


@pytest.mark.slow
def test_a_power_ends_with_its_time_and_the_next_rendering_works() -> None:
    template = ChatTemplate("{{ n ** (n ** n) }}", "mine", "2026-01-01")
    with pytest.raises(UserError, match="more than 1 s of processor time, or too much memory"):
        template.render(CHAT | {"n": 9})
    assert template.render(CHAT | {"n": 2}) == "16"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m['content'] }}\n{% endfor %}", "user: 2+3=\n"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "2+3="),
        ("{{ messages|tojson }}", '[{"role": "user", "content": "2+3="}]'),
        ("{{ {'é': 1}|tojson(indent=1) }}", '{\n "é": 1\n}'),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('a') }}{{ messages[0].content.split('+')[1] }}", "<a>3="),
        ("{{ strftime_now('%d %b %Y') }}{{ nothing }}{{ none }}{{ [1, 'a'] }}", "01 Jan 2026None[1, 'a']"),
    ],
)
def test_what_templates_rely_on(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    "source", ["{{ range(9)|random }}", "{{ lipsum() }}", "{{ ''.join }}", "{{ [1]|map('string') }}"]
)
def test_nothing_that_differs_from_process_to_process_is_written(source: str) -> None:
    with pytest.raises(UserError):
        render(source)


def test_its_own_words_are_given_in_a_line() -> None:
    with pytest.raises(UserError, match=r"refuses these messages: no \\x1b\[31mtools here$"):
        render("{{ raise_exception('no \x1b[31mtools\nhere') }}")


def test_one_that_was_used_goes_to_another_process() -> None:
    """As samplers of a cluster get it."""
    template = ChatTemplate("{{ messages[0].content }}", "mine", "2026-01-01", seconds=2)
    values = {"messages": [{"role": "user", "content": "hello"}]}
    assert template.render(values) == "hello" == pickle.loads(pickle.dumps(template)).render(values)
