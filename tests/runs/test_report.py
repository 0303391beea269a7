import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from posttrain.runs.report import shortened, visible, write_report
from posttrain.runs.samples import compared_answers
from posttrain.runs.store import RunStore, rollout_rows
from posttrain.types import Score
from tests.runs.made_runs import RECIPE, make_run, right, trajectory, wrong

VOID = {"meta", "input", "br", "link", "img"}


class Page(HTMLParser):
    """Checks that every element is closed, and collects texts, attributes and elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data


def page(folder: Path) -> Page:
    path = write_report(folder)
    assert path == folder / "report.html"
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs"))


def test_the_page_needs_nothing_from_outside(whole: Path) -> None:
    found = page(whole)
    assert not [1 for tag, _ in found.elements if tag in ("link", "img", "iframe", "object", "base", "form")]
    assert not [a for _, a in found.elements if a.keys() & {"src", "href", "srcset", "action"}]
    html = (whole / "report.html").read_text()
    assert set(re.findall(r"https?://[^\"'\s<]*", html)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in html and "@import" not in html
    assert "default-src 'none'" in html
    assert len(html) < 300_000


def test_it_states_how_good_the_model_was_and_is(whole: Path) -> None:
    text = " ".join(page(whole).text.split())
    assert "14.0 %→87.5 % Accuracy on 200 held-out tasks, before and after. Better by +73.5 points" in text
    assert ("span", {"class": "is better"}) in page(whole).elements
    assert "155 tasks were learned and 8 lost" in text
    assert "Scored by numeric, the training reward." in text
    for title in (
        "Stages",
        "Curves",
        "The same tasks before and after",
        "What step 44 learned from",
        "Events",
        "Run it again",
    ):
        assert title in text
    assert f"posttrain run {whole}" in text
    assert "entropy fell below 0.1 nats" in text


def test_there_is_a_curve_for_everything_measured_and_nothing_else(whole: Path) -> None:
    labels = [a["aria-label"] for tag, a in page(whole).elements if tag == "svg" and a.get("class") == "chart"]
    assert labels == [
        "Held-out accuracy",
        "Reward",
        "Loss",
        "Length",
        "Entropy",
        "Divergence",
        "Shares",
        "Gradient norm",
    ]


def test_answers_are_shown_next_to_each_other_by_what_became_of_them(whole: Path) -> None:
    found = page(whole)
    assert "Learned 155" in found.text and "Lost 8" in found.text
    tabs = [a["data-for"] for _, a in found.elements if "data-for" in a]
    assert tabs == ["kind-gained", "kind-lost", "kind-wrong", "kind-right"]
    sides = sum(a.get("class") == "side" for _, a in found.elements)
    assert sides == 2 * (6 + 4 + 4 + 3)


def test_tokens_carry_their_numbers(whole: Path) -> None:
    found = page(whole)
    tokens = [
        a for tag, a in found.elements if tag == "span" and (a.get("class") or "").startswith("t ") and "title" in a
    ]
    assert len(tokens) > 100
    assert re.fullmatch(r"advantage -?[\d.]+, log-probability -[\d.e-]+, entropy [\d.e-]+", tokens[0]["title"] or "")
    assert {a["class"] for a in tokens} == {"t p", "t m"}
    labels = [a["for"] for tag, a in found.elements if tag == "label"]
    assert labels[-3:] == ["by-advantage", "by-surprise", "by-entropy"]


HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\" onmouseover='x' "
    "\x00\x1b[31m\u202e{{ 7191*7919 }} {% raw %}"
)


def test_nothing_that_a_model_or_a_user_wrote_becomes_markup(tmp_path: Path) -> None:
    score = Score(value=0.0, status="wrong", answer=HOSTILE, explanation=HOSTILE)
    hostile = trajectory(HOSTILE, HOSTILE, answer=HOSTILE, key=HOSTILE, score=score)
    recipe = {**RECIPE, "name": HOSTILE}
    with RunStore.create(tmp_path, "run", recipe) as run:
        summary = {"accuracy": 0.0, "accuracy_interval": [0.0, 0.8], "tasks": 1, "errors": 0, "verifier": HOSTILE}
        run.write_evaluation(0, "before", rollout_rows([hostile]), summary)
        for step in (1, 2):
            run.log_metrics(step, f"{step}{HOSTILE}", 1, {"reward": 0.5, f"reward/{HOSTILE}": 1.0})
            run.log_timing(step, HOSTILE, 1, {f"seconds_{HOSTILE}": 1.0, "seconds_total": 1.0})
        columns = [{"advantage": np.ones(hostile.num_trained, np.float32)}]
        run.write_rollouts(2, rollout_rows([hostile], columns=columns, dropped=[HOSTILE]))
        run.log_event(1, HOSTILE, HOSTILE)
        run.write_evaluation(2, HOSTILE, rollout_rows([hostile]), summary)
    found = page(run.folder)
    assert sum(tag == "script" for tag, _ in found.elements) == 1
    assert not [1 for tag, _ in found.elements if tag == "img"]
    assert not [a for _, a in found.elements if any(name.startswith("on") for name in a)]
    assert "{{ 7191*7919 }}" in found.text and "56945529" not in found.text
    assert "\x00" not in found.text and "␀" in found.text


def test_a_run_without_any_step(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "run", RECIPE) as run:
        text = page(run.folder).text
    assert "Held-out accuracy was not measured." in text
    assert "Curves" not in text and "learned from" not in text


def test_a_run_in_progress_can_be_inspected(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "run", RECIPE) as run:
        summary = {"accuracy": 0.5, "accuracy_interval": [0.1, 0.9], "tasks": 2, "errors": 0, "verifier": "numeric"}
        answers = [trajectory(key="a", score=right("5")), trajectory(key="b", score=wrong("4", "5"))]
        run.write_evaluation(0, "before", rollout_rows(answers), summary)
        run.log_metrics(1, "sft", 1, {"loss": 1.0})
        text = " ".join(page(run.folder).text.split())
    assert "Accuracy on held-out tasks before the run" in text
    assert "Wrong 1" in text and "Right 1" in text and "Loss" in text


def test_without_a_tokenizer_or_score_rollouts_are_plain(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "run", RECIPE) as run:
        run.log_metrics(1, "sft", 1, {"loss": 1.0})
        run.write_rollouts(1, rollout_rows([trajectory(completion="a demonstration")]))
        found = page(run.folder)
    assert "a demonstration" in found.text
    assert "Tokens cannot be coloured" in found.text
    assert not [a for _, a in found.elements if (a.get("class") or "").startswith("badge")]


def test_answers_that_were_not_scored_are_not_wrong(tmp_path: Path) -> None:
    """Two of three: one whose grader failed at last, one that nothing scored."""
    failed = Score(value=0.0, status="error", explanation="the grader failed")
    with RunStore.create(tmp_path, "run", RECIPE) as store:
        for step, scores in enumerate(([right("5"), right("5"), None], [right("5"), failed, None])):
            rows = [trajectory(key=str(i), score=score) for i, score in enumerate(scores)]
            summary = {"accuracy": 1.0, "accuracy_interval": [0.2, 1.0], "tasks": 3, "errors": 2, "verifier": "match"}
            store.write_evaluation(step, f"e{step}", rollout_rows(rows), summary)
        found = compared_answers(store)
    assert [(group["title"], group["count"]) for group in found["groups"]] == [("Still right", 1), ("Not scored", 2)]
    page = write_report(store.folder).read_text(encoding="utf-8")
    assert "Still wrong" not in page and page.count("not scored</span>") == 1 and "score 0" not in page


def test_events_of_the_process_are_shown(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "run", RECIPE) as run:
        run.log_metrics(1, "sft", 1, {"loss": 1.0})
        run.rewind({})
        run.log_history("bad checkpoint", "step_000001_0 is damaged: state.json has changed")
        text = page(run.folder).text
    assert "went back to step 0; steps done again because no checkpoint held them: 1" in text
    assert "state.json has changed" in text


def test_texts() -> None:
    assert visible("a\x00\tb\n\x7f") == "a␀\tb\n␡"
    assert shortened("x" * 4000) == "x" * 4000
    assert "[... 6,000 characters left out ...]" in shortened("x" * 10_000)


@pytest.mark.parametrize(
    ("outcomes", "verdict", "said"),
    [
        ("rrrrrrrrrr", "better", "10 tasks were learned and 0 lost"),
        ("wwwwwwwwww", "worse", "0 tasks were learned and 10 lost"),
        ("rwwwwwwwww", "unclear", "1 task was learned and 0 lost"),
    ],
)
def test_the_headline_claims_no_more_than_the_interval(tmp_path: Path, outcomes: str, verdict: str, said: str) -> None:
    before = {"better": "w", "worse": "r", "unclear": "w"}[verdict] * 10
    with RunStore.create(tmp_path, "run", RECIPE) as run:
        for step, name, results in ((0, "before", before), (1, "rl", outcomes)):
            scores = [right("5") if result == "r" else wrong("4", "5") for result in results]
            answers = [trajectory(key=f"task-{i}", score=score) for i, score in enumerate(scores)]
            summary = {"accuracy": results.count("r") / 10, "accuracy_interval": [0.0, 1.0], "tasks": 10, "errors": 0}
            run.write_evaluation(step, name, rollout_rows(answers), {**summary, "verifier": "numeric"})
            run.log_metrics(step + 1, "rl", 1, {})
        found = page(run.folder)
        assert ("span", {"class": f"is {verdict}"}) in found.elements and said in " ".join(found.text.split())
