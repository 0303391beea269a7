"""Pages of a made-up run, as a browser gets them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from starlette.testclient import TestClient

from posttrain.datasets.images import write_png
from posttrain.runs.store import RunStore, rollout_rows
from posttrain.types import Image, Score, Segment
from posttrain.viewer.app import link
from posttrain.viewer.notes import Notes, Rollout
from tests.runs.made_runs import RECIPE, Note, evaluate, make_run, right, trajectory, wrong
from tests.viewer.looking import HERE, Page, browser

STEP = "/runs/quickstart-1/steps/20"

pytestmark = pytest.mark.slow  # seconds for many of them


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs"), sft=4, rl=16, tasks=60)


@pytest.fixture(scope="module")
def looking(whole: Path) -> TestClient:
    return browser(whole)


def page(looking: TestClient, address: str, status: int = 200) -> Page:
    response = looking.get(address)
    assert response.status_code == status, response.text
    return Page(response.text)


def as_json(looking: TestClient, address: str) -> Any:
    response = looking.get(address, params={"as": "json"}) if "?" not in address else looking.get(f"{address}&as=json")
    assert response.headers["content-type"] == "application/json"
    return response.json()


@pytest.mark.slow
def test_every_link_leads_to_a_page(looking: TestClient) -> None:
    """From the first page, along whatever can be clicked; each kind of page is among them."""
    seen: set[str] = set()
    waiting = ["/"]
    kinds: dict[str, int] = {}
    while waiting:
        address = waiting.pop()
        kind = re.sub(r"/\d+|/sum-\d+", "/N", urlsplit(address).path)
        if address in seen or kinds.get(kind, 0) >= 8:
            continue
        seen.add(address)
        kinds[kind] = kinds.get(kind, 0) + 1
        found = [link.partition("#")[0] for link in page(looking, address).links()]
        waiting += [link for link in found if "/export" not in link]
        assert all(looking.get(link).status_code == 200 for link in found if "/export" in link)
    run = "/runs/quickstart-1"
    pages = {
        "",
        "/steps/N",
        "/steps/N/groups/N",
        "/search",
        "/solved",
        "/tasks/N",
        "/queue",
        "/heldout",
        "/curriculum",
        "/pairs",
    }
    assert set(kinds) == {"/", "/compare", *(run + p for p in pages)}


def test_the_runs(looking: TestClient, whole: Path) -> None:
    [one] = as_json(looking, "/")["runs"]
    assert (one["name"], one["recipe"], one["steps"], one["finished"]) == ("quickstart-1", "quickstart", 20, False)
    found = page(looking, "/")
    assert "/runs/quickstart-1" in found.links()


def test_a_run(looking: TestClient) -> None:
    found = page(looking, "/runs/quickstart-1")
    assert "entropy fell below 0.1 nats" in found.text
    labels = [a["aria-label"] for tag, a in found.elements if tag == "svg"]
    assert "Held-out accuracy" in labels and "Reward" in labels
    recorded = [address for address in found.links() if "/steps/" in address]
    assert recorded == [f"/runs/quickstart-1/steps/{step}" for step in range(20, 4, -1)]
    [body] = [a for tag, a in found.elements if tag == "body"]
    assert (body["data-watch"], body["data-steps"]) == ("/runs/quickstart-1/position", "20")
    assert body["data-search"] == "/runs/quickstart-1/search"


def test_the_position_of_a_run(looking: TestClient) -> None:
    assert looking.get("/runs/quickstart-1/position").json() == {"steps": 20, "finished": False}


def test_a_step_shows_every_rollout_as_a_dot(looking: TestClient, whole: Path) -> None:
    found = page(looking, STEP)
    with RunStore.open(whole, reading=True) as store:
        rows = store.rollouts(20)
    dots = [a for a in found.with_class("dot") if "title" in a]
    assert [str(a["class"]).split()[1] for a in dots] == [row["score_status"] for row in rows]
    assert [a["rel"] for tag, a in found.elements if tag == "a" and "rel" in a] == ["prev"]
    assert as_json(looking, STEP)["before"] == 19


def test_a_step_that_imitated_has_no_rollouts(looking: TestClient) -> None:
    assert "No rollouts are recorded" in page(looking, "/runs/quickstart-1/steps/2").text


def test_a_group_token_by_token(looking: TestClient, whole: Path) -> None:
    with RunStore.open(whole, reading=True) as store:
        rows = store.rollouts(20, where="group_index = 2")
    data = as_json(looking, f"{STEP}/groups/2")
    opening = "".join(piece["text"] for piece in data["opening"])
    for rollout, row in zip(data["rollouts"], rows, strict=True):
        text = "".join(piece["text"] for segment in rollout["segments"] for piece in segment["pieces"])
        assert (opening, text) == (row["prompt"], row["completion"]), "the prompt is there once"
    count = len(data["opening"]) + sum(len(row["token_ids"]) - len(data["opening"]) for row in rows)
    assert [c["name"] for c in data["colours"]] == ["advantage", "surprise", "entropy", "gap"]
    assert (data["before"], data["after"], data["parts"]) == (1, 3, ["exact", "format"])
    found = page(looking, f"{STEP}/groups/2")
    assert len([a for a in found.with_class("t") if "title" in a]) == count
    assert len(found.with_class("minus")) > 0
    hot = page(looking, f"{STEP}/groups/2?colour=entropy")
    assert len([a for a in hot.with_class("hot") if "title" in a]) == count
    assert (
        'href="/runs/quickstart-1/steps/20/groups/2?colour=entropy" aria-current="page"'
        in looking.get(f"{STEP}/groups/2?colour=entropy").text
    )


def test_search(looking: TestClient) -> None:
    address = link("runs", "quickstart-1", "search", text=r"#### 1\d\d", status="ok", order="longest")
    data = as_json(looking, address)
    assert data["in_all"] > 0
    lengths = [row["num_tokens"] for row in data["rollouts"]]
    assert lengths == sorted(lengths, reverse=True)
    found = page(looking, address)
    chosen = {a["value"] for tag, a in found.elements if tag == "option" and "selected" in a}
    assert chosen == {"completion", "ok", "", "longest"}
    marked = [part["text"] for row in data["rollouts"] for part in row["parts_of"]["completion"] if part["found"]]
    assert len(marked) == len(data["rollouts"]) and all(re.fullmatch(r"#### 1\d\d", text) for text in marked)
    assert len([tag for tag, _ in found.elements if tag == "mark"]) == len(marked)
    assert any(a.get("value") == r"#### 1\d\d" for tag, a in found.elements if tag == "input")
    mistake = page(looking, "/runs/quickstart-1/search?text=(", status=400)
    assert "not a regular expression" in mistake.text


def test_pages_of_a_search(looking: TestClient) -> None:
    data = as_json(looking, "/runs/quickstart-1/search?page=9")
    assert data["pages"] == {"page": 9, "last": 9, "count": 256, "first": 241}
    assert len(data["rollouts"]) == 16
    found = page(looking, "/runs/quickstart-1/search?order=oldest&page=2")
    turning = [str(a["href"]) for tag, a in found.elements if tag == "a" and a.get("rel") in ("prev", "next")]
    assert turning == [f"/runs/quickstart-1/search?order=oldest&page={n}" for n in (1, 3)] * 2


def test_a_task_over_the_evaluations(looking: TestClient) -> None:
    data = as_json(looking, "/runs/quickstart-1/tasks/sum-1000")
    texts = [row["completion"] for row in data["answers"]]
    assert len(texts) == 4  # before, after imitation, in the middle and at the end of reinforcement
    for before, row in zip(texts, data["answers"][1:], strict=False):
        assert "".join(p["text"] for p in row["changed"] if p["kind"] != "new") == before
        assert "".join(p["text"] for p in row["changed"] if p["kind"] != "gone") == row["completion"]


def test_held_out_answers_of_two_evaluations(looking: TestClient, whole: Path) -> None:
    with RunStore.open(whole, reading=True) as store:
        rows = [
            {row["task_key"]: row["score_status"] == "ok" for row in store.evaluation_rows(step, name)}
            for step, name in ((0, "before"), (20, "rl"))
        ]
    gained = sum(rows[1][key] and not right for key, right in rows[0].items())
    lost = sum(right and not rows[1][key] for key, right in rows[0].items())
    data = as_json(looking, "/compare")
    assert (data["counts"]["gained"], data["counts"]["lost"]) == (gained, lost)
    assert data["change"]["value"] == pytest.approx((gained - lost) / 60)
    assert [side["number"] for side in data["sides"]] == [0, 3]
    data = as_json(looking, "/compare?kind=gained")
    assert {pair["outcome"] for pair in data["pairs"]} == {"gained"}
    assert {pair["gain"] for pair in data["pairs"]} == {1.0}
    found = page(looking, "/compare?kind=gained")
    assert len(found.with_class("task")) == min(gained, 30)


def test_two_runs_are_compared_on_the_tasks_of_both(tmp_path: Path) -> None:
    for tasks in (8, 5):
        with RunStore.create(tmp_path, "run", RECIPE) as store:
            evaluate(store, 0, "before", 0.5, tasks)
    looking = browser(tmp_path)
    data = as_json(looking, "/compare?a=run-1&b=run-2")
    assert (data["shared"], data["only"]) == (5, [3, 0])
    assert "3 tasks are only in the first, 0 only in the second" in page(looking, "/compare?a=run-1&b=run-2").text
    assert "Compare answers" in page(looking, "/").text


@pytest.mark.parametrize(
    ("address", "status", "message"),
    [
        ("/runs/other", 404, "there is no run other here; there are: quickstart-1"),
        ("/runs/quickstart-1/steps/99", 404, "rollouts are recorded of 16 steps from 5 to 20"),
        ("/runs/quickstart-1/steps/20/groups/9", 404, "step 20 of the run quickstart-1 has no group 9"),
        ("/runs/quickstart-1/tasks/other", 404, "has recorded no answer to a task other"),
        ("/runs/quickstart-1?page=one", 400, "page must be a whole number, got 'one'"),
        ("/runs/quickstart-1?page=0", 400, "page must be at least 1, got 0"),
        ("/runs/quickstart-1/search?order=best", 400, "order must be one of 'newest', 'oldest'"),
        ("/runs/quickstart-1/search?inside=answer", 400, "inside must be one of 'completion', 'prompt'"),
        ("/runs/quickstart-1?sort=best", 400, "sort must be one of step, reward, loss"),
        ("/runs/quickstart-1/search?review=odd", 400, "review must be one of ''"),
        ("/curves?run=other", 404, "there is no run other here"),
        ("/compare?a=other", 404, "there is no run other here"),
        ("/compare?of_a=7", 404, "has 4 evaluations, numbered from 0; there is no 7"),
    ],
)
def test_errors_are_shown(looking: TestClient, address: str, status: int, message: str) -> None:
    assert message in page(looking, address, status).text
    assert as_json(looking, address)["message"].count(message) == 1


def test_a_record_that_cannot_be_read_is_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path, sft=1, rl=2, tasks=4)
    for table in (run / "rollouts").iterdir():
        table.write_bytes(table.read_bytes()[:200])
    looking = browser(tmp_path)
    for address in ("/steps/2", "/search", "/solved", "/tasks/sum-8"):
        assert "the record of this run cannot be read" in page(looking, f"/runs/quickstart-1{address}", 500).text
    assert page(looking, "/runs/quickstart-1").text


def test_what_models_wrote_is_text(tmp_path: Path) -> None:
    """Markup, scripts, control characters and addresses in prompts, completions, keys and explanations."""
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J'\"&"
    score = Score(
        value=0.0, status="wrong", answer=evil, explanation=evil, parts={evil: Score(value=0.0, status="wrong")}
    )
    made = trajectory(
        prompt=evil, completion=evil, answer=evil, key=f"../{evil}", score=score, facts=(Note(entries={evil: evil}),)
    )
    with RunStore.create(tmp_path, "evil", {**RECIPE, "name": evil}) as store:
        store.log_metrics(1, "rl", 1, {"reward": 0.0})
        store.log_event(1, evil, evil)
        store.write_rollouts(1, rollout_rows([made], stage=evil, dropped=[evil]))
        for name in ("a", "b"):
            store.write_evaluation(
                1,
                f"{evil}{name}",
                rollout_rows([made]),
                {"accuracy": 0.0, "accuracy_interval": [0, 1], "tasks": 1, "errors": 0, "verifier": evil},
            )
    looking = browser(tmp_path)
    task = link("runs", "evil-1", "tasks", f"../{evil}")
    pages = ["", "/steps/1", "/steps/1/groups/0", "/search", "/search?text=script", "/solved", "/solved?by=task"]
    pages += ["/queue", "/heldout", "/search?text=script&inside=prompt", "/search?text=alert&inside=score_explanation"]
    Notes(store.folder).write(Rollout(1, 0, 0), evil[:30], evil)
    for address in ("/", "/compare", "/curves", task, *(f"/runs/evil-1{end}" for end in pages)):
        found = page(looking, address)
        scripts = [a for tag, a in found.elements if tag == "script"]
        assert scripts == [{"src": "/view.js", "defer": None}], address
        assert not [a for tag, a in found.elements if tag == "img"], address
        assert not [a for _, a in found.elements if any(name.startswith("on") for name in a)], address
        assert "\x1b" not in looking.get(address).text


def test_pictures_are_shown(tmp_path: Path) -> None:
    picture = Image(data=write_png(np.zeros((2, 2, 3), np.uint8)), name="dot.png")
    made = trajectory(score=right("5"))
    made = replace(made, task=replace(made.task, images=(picture,)))
    with RunStore.create(tmp_path, "seeing", RECIPE) as store:
        store.log_metrics(1, "rl", 1, {})
        store.write_rollouts(1, rollout_rows([made], groups=[0]))
    found = page(browser(tmp_path), "/runs/seeing-1/steps/1/groups/0")
    [image] = [a for tag, a in found.elements if tag == "img"]
    assert str(image["src"]).startswith("data:image/png;base64,")


def test_turns_are_shown_by_who_wrote_them(tmp_path: Path) -> None:
    made = trajectory(score=wrong("4", "5"))
    reply = Segment(actor="environment", token_ids=made.segments[0].token_ids, turn=1, text="2+3=", reward=0.25)
    made = replace(made, segments=(*made.segments, reply))
    with RunStore.create(tmp_path, "turns", RECIPE) as store:
        store.log_metrics(1, "rl", 1, {})
        store.write_rollouts(1, rollout_rows([made]))
    found = page(browser(tmp_path), "/runs/turns-1/steps/1/groups/0")
    assert "environment, turn 1, reward 0.250" in found.text
    assert len([a for a in found.with_class("fixed") if "title" in a]) == 2 * len("2+3=")


def test_long_rollouts_are_cut_and_shown_whole_when_asked(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "long", RECIPE) as store:
        store.log_metrics(1, "rl", 1, {})
        store.write_rollouts(1, rollout_rows([trajectory(completion="word " * 1000, score=wrong("", "5"))]))
    looking = browser(tmp_path)
    address = "/runs/long-1/steps/1/groups/0"
    assert "1,004 more tokens" in page(looking, address).text
    assert len([a for a in page(looking, f"{address}?all=1").with_class("t") if "title" in a]) == 5004


def test_only_its_own_address_is_answered(whole: Path) -> None:
    looking = browser(whole)
    assert looking.get("/", headers={"Host": "evil.example"}).status_code == 400
    for host in ("localhost:8600", "127.0.0.1:8600", "[::1]:8600"):
        assert looking.get("/", headers={"Host": host}).status_code == 200, host


def test_headers_keep_everything_else_out(looking: TestClient) -> None:
    for address in ("/", "/runs/quickstart-1?as=json", "/view.js", "/view.css", "/runs/other"):
        headers = looking.get(address).headers
        assert "default-src 'none'" in headers["content-security-policy"], address
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_nothing_of_a_run_can_be_changed(looking: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for page in ("", "/steps/20/groups/0", "/search", "/queue"):
            assert looking.request(method, f"/runs/quickstart-1{page}").status_code == 405


def test_a_key_opens_it_once_and_for_all(whole: Path) -> None:
    looking = browser(whole, key="secret", hosts=("*",))
    assert "requires the key" in page(looking, "/", status=401).text
    assert looking.get("/?key=wrong").status_code == 401
    assert looking.get("/runs/quickstart-1/position").status_code == 401
    first = looking.get("/?key=secret", follow_redirects=False)
    assert first.headers["location"] == f"{HERE}/"
    assert "httponly" in first.headers["set-cookie"].lower()
    assert looking.get("/").status_code == 200


def test_addresses() -> None:
    assert link() == "/"
    assert link("runs", "a b/c", text="x&y=1", order="", page=None) == "/runs/a%20b%2Fc?text=x%26y%3D1"


def test_a_finished_run_is_not_watched(tmp_path: Path) -> None:
    run = make_run(tmp_path, sft=1, rl=1, tasks=4)
    (run / "summary.json").write_text(
        '{"steps": 2, "accuracy_before": 0.25, "accuracy_after": 0.5, "seconds": 3.0, "gain": null}'
    )
    looking = browser(tmp_path)
    [body] = [a for tag, a in page(looking, "/runs/quickstart-1").elements if tag == "body"]
    assert "data-watch" not in body
    assert "25.0 % 50.0 %" in page(looking, "/").text


def test_a_long_group_comes_in_parts(tmp_path: Path) -> None:
    made = [trajectory(sample=i, completion=f"{i}", score=right("5")) for i in range(40)]
    with RunStore.create(tmp_path, "wide", RECIPE) as store:
        store.log_metrics(1, "rl", 1, {})
        store.write_rollouts(1, rollout_rows(made, groups=[0] * 40))
    looking = browser(tmp_path)
    address, seen = "/runs/wide-1/steps/1/groups/0", list[int]()
    first: int | None = 0
    while first is not None:
        data = as_json(looking, f"{address}?first={first}")
        seen += [rollout["sample"] for rollout in data["rollouts"]]
        first = data["next"]
    assert seen == list(range(40)) and data["size"] == 40
    found = page(looking, address)
    assert [a["href"] for tag, a in found.elements if "data-more" in a] == [f"{address}?colour=surprise&first=16"]
    assert "Rollouts 17 to 32 of 40" in found.text
    assert [r["sample"] for r in as_json(looking, f"{address}?sample=37")["rollouts"]] == list(range(32, 40))


def test_prompts_that_differ_are_shown_with_their_rollouts(tmp_path: Path) -> None:
    made = [trajectory(prompt=prompt, sample=i, score=right("5")) for i, prompt in enumerate(("2+3=", "3+2="))]
    with RunStore.create(tmp_path, "two", RECIPE) as store:
        store.log_metrics(1, "rl", 1, {})
        store.write_rollouts(1, rollout_rows(made, groups=[0, 0]))
    data = as_json(browser(tmp_path), "/runs/two-1/steps/1/groups/0")
    assert data["opening"] == []
    assert [[s["actor"] for s in r["segments"]] for r in data["rollouts"]] == [["prompt", "policy"]] * 2


def test_demonstrations_are_shown_by_surprise(tmp_path: Path) -> None:
    made = trajectory(score=None)
    prompt, written = made.segments
    made = replace(made, segments=(prompt, replace(written, actor="demonstration", logp=None)))
    columns = [{"advantage": np.ones(1, np.float32), "trained_logp": np.array([-1.5], np.float32)}]
    with RunStore.create(tmp_path, "sft", RECIPE) as store:
        store.log_metrics(1, "sft", 1, {"loss": 1.5})
        store.write_rollouts(1, rollout_rows([made], stage="sft", columns=columns))
    looking = browser(tmp_path)
    data = as_json(looking, "/runs/sft-1/steps/1/groups/0")
    assert (data["imitated"], data["colour"]) == (True, "surprise")
    [segment] = data["rollouts"][0]["segments"]
    assert (segment["actor"], segment["pieces"][0]["trained"]) == ("demonstration", True)
    assert "surprise 1.500" in segment["pieces"][0]["numbers"]
    assert "1 demonstration of task" in page(looking, "/runs/sft-1/steps/1/groups/0").text
    unscored = as_json(looking, "/runs/sft-1/queue")["reasons"][0]
    assert (unscored["key"], unscored["in_all"]) == ("unscored", 0), "nothing was to judge them"


def test_what_cannot_be_seen_is_shown(tmp_path: Path) -> None:
    """A text that turns its direction, hides a space of no width, and ends with a tag of no shape."""
    hidden = "a\u202eb\u200bc\u2066d\U000e0041\ufeffe\u0085"
    with RunStore.create(tmp_path, "hidden", RECIPE) as store:
        store.log_metrics(1, "rl", 1, {})
        store.write_rollouts(1, rollout_rows([trajectory(completion=hidden, score=right("5"))]))
    looking = browser(tmp_path)
    shown = "a[U+202E]b[U+200B]c[U+2066]d[U+E0041][U+FEFF]e[U+0085]"
    for address in ("/runs/hidden-1/search", "/runs/hidden-1/tasks/task-0", "/runs/hidden-1/queue"):
        assert shown in page(looking, address).text, address
    assert as_json(looking, "/runs/hidden-1/search")["rollouts"][0]["completion"] == hidden, "data are as they are"


def test_the_state_of_a_run_and_its_reason(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "one", RECIPE) as store:
        looking = browser(tmp_path)
        assert as_json(looking, "/")["runs"][0]["state"] == "running"
        store.log_history("stopped", "stopped after step 3 (Ctrl-C)")
    [one] = as_json(looking, "/")["runs"]
    assert (one["state"], one["why"]) == ("stopped", "stopped after step 3 (Ctrl-C)")
    assert "stopped: stopped after step 3 (Ctrl-C)" in page(looking, "/runs/one-1").text


def test_answers_without_a_score_are_not_wrong(tmp_path: Path) -> None:
    """Of three tasks one was right both times, one failed to be scored the second time, one was never scored."""
    failed = Score(value=0.0, status="error")
    scores = {"a": [right("5"), failed], "b": [right("5"), right("5")], "c": [None, None]}
    with RunStore.create(tmp_path, "run", RECIPE) as store:
        for step in (0, 1):
            rows = [trajectory(key=key, score=own[step]) for key, own in scores.items()]
            summary = {"accuracy": 1.0, "accuracy_interval": [0, 1], "tasks": 3, "errors": 2, "verifier": "match"}
            store.write_evaluation(step, f"e{step}", rollout_rows(rows), summary)
    looking = browser(tmp_path)
    data = as_json(looking, "/compare?kind=unscored")
    assert data["counts"] == {"lost": 0, "gained": 0, "wrong": 0, "right": 1, "unscored": 2}
    assert data["change"]["tasks"] == 1
    assert "Not scored 2" in page(looking, "/compare").text
    rows = {row["key"]: row["cells"] for row in as_json(looking, "/runs/run-1/heldout")["rows"]}
    assert rows == {"a": ["right", "unscored"], "b": ["right", "right"], "c": ["unscored", "unscored"]}
