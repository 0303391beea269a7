"""Pages of a made-up run, as a browser gets them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from posttrain.datasets.images import write_png
from posttrain.runs.store import RunStore, rollout_rows
from posttrain.types import Image, Score, Segment
from posttrain.viewer.app import link
from tests.runs.made_runs import RECIPE, Note, evaluate, make_run, right, trajectory, wrong
from tests.viewer.looking import HERE, Page, browser

STEP = "/runs/quickstart-1/steps/20"


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


def said(looking: TestClient, address: str) -> Any:
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
        waiting += [found.partition("#")[0] for found in page(looking, address).links()]
    run = "/runs/quickstart-1"
    pages = {"", "/steps/N", "/steps/N/groups/N", "/search", "/solved", "/tasks/N"}
    assert set(kinds) == {"/", "/compare", *(run + p for p in pages)}


def test_the_runs(looking: TestClient, whole: Path) -> None:
    [one] = said(looking, "/")["runs"]
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
    assert ("body", {"data-watch": "/runs/quickstart-1/position", "data-steps": "20"}) in found.elements


def test_the_position_of_a_run(looking: TestClient) -> None:
    assert looking.get("/runs/quickstart-1/position").json() == {"steps": 20, "finished": False}


def test_a_step_shows_every_attempt_as_a_dot(looking: TestClient, whole: Path) -> None:
    found = page(looking, STEP)
    with RunStore.open(whole, reading=True) as store:
        rows = store.rollouts(20)
    dots = [a for a in found.with_class("dot") if "title" in a]
    assert [str(a["class"]).split()[1] for a in dots] == [row["score_status"] for row in rows]
    assert [a["rel"] for tag, a in found.elements if tag == "a" and "rel" in a] == ["prev"]
    assert said(looking, STEP)["before"] == 19


def test_a_step_that_imitated_has_no_attempts(looking: TestClient) -> None:
    assert "No attempts are recorded" in page(looking, "/runs/quickstart-1/steps/2").text


def test_a_group_token_by_token(looking: TestClient, whole: Path) -> None:
    with RunStore.open(whole, reading=True) as store:
        rows = store.rollouts(20, where="group_index = 2")
    told = said(looking, f"{STEP}/groups/2")
    for attempt, row in zip(told["attempts"], rows, strict=True):
        text = "".join(piece["text"] for segment in attempt["segments"] for piece in segment["pieces"])
        assert text == row["prompt"] + row["completion"]
    assert [c["name"] for c in told["colours"]] == ["advantage", "surprise", "entropy", "gap"]
    assert (told["before"], told["after"], told["parts"]) == (1, 3, ["exact", "format"])
    found = page(looking, f"{STEP}/groups/2")
    assert len([a for a in found.with_class("t") if "title" in a]) == sum(len(row["token_ids"]) for row in rows)
    assert len(found.with_class("minus")) > 0
    hot = page(looking, f"{STEP}/groups/2?colour=entropy")
    assert len([a for a in hot.with_class("hot") if "title" in a]) == sum(len(row["token_ids"]) for row in rows)
    assert (
        'href="/runs/quickstart-1/steps/20/groups/2?colour=entropy" aria-current="page"'
        in looking.get(f"{STEP}/groups/2?colour=entropy").text
    )


def test_search(looking: TestClient) -> None:
    address = link("runs", "quickstart-1", "search", text=r"#### 1\d\d", status="ok", order="longest")
    told = said(looking, address)
    assert told["in_all"] > 0
    lengths = [row["num_tokens"] for row in told["attempts"]]
    assert lengths == sorted(lengths, reverse=True)
    found = page(looking, address)
    chosen = {a["value"] for tag, a in found.elements if tag == "option" and "selected" in a}
    assert chosen == {"completion", "ok", "", "longest"}
    assert any(a.get("value") == r"#### 1\d\d" for tag, a in found.elements if tag == "input")
    mistake = page(looking, "/runs/quickstart-1/search?text=(", status=400)
    assert "not a regular expression" in mistake.text


def test_pages_of_a_search(looking: TestClient) -> None:
    told = said(looking, "/runs/quickstart-1/search?page=9")
    assert told["pages"] == {"page": 9, "last": 9, "count": 256, "first": 241}
    assert len(told["attempts"]) == 16
    found = page(looking, "/runs/quickstart-1/search?order=oldest&page=2")
    turning = [str(a["href"]) for tag, a in found.elements if tag == "a" and a.get("rel") in ("prev", "next")]
    assert turning == [f"/runs/quickstart-1/search?order=oldest&page={n}" for n in (1, 3)] * 2


def test_a_task_over_the_evaluations(looking: TestClient) -> None:
    told = said(looking, "/runs/quickstart-1/tasks/sum-1000")
    texts = [row["completion"] for row in told["answers"]]
    assert len(texts) == 4  # before, after imitation, in the middle and at the end of reinforcement
    for before, row in zip(texts, told["answers"][1:], strict=False):
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
    told = said(looking, "/compare")
    assert (told["counts"]["gained"], told["counts"]["lost"]) == (gained, lost)
    assert told["change"]["value"] == pytest.approx((gained - lost) / 60)
    assert [side["number"] for side in told["sides"]] == [0, 3]
    told = said(looking, "/compare?kind=gained")
    assert {pair["outcome"] for pair in told["pairs"]} == {"gained"}
    assert {pair["gain"] for pair in told["pairs"]} == {1.0}
    found = page(looking, "/compare?kind=gained")
    assert len(found.with_class("task")) == min(gained, 30)


def test_two_runs_are_compared_on_the_tasks_of_both(tmp_path: Path) -> None:
    for tasks in (8, 5):
        with RunStore.create(tmp_path, "run", RECIPE) as store:
            evaluate(store, 0, "before", 0.5, tasks)
    looking = browser(tmp_path)
    told = said(looking, "/compare?a=run-1&b=run-2")
    assert (told["shared"], told["only"]) == (5, [3, 0])
    assert "3 tasks are only in the first, 0 only in the second" in page(looking, "/compare?a=run-1&b=run-2").text
    assert "Compare answers" in page(looking, "/").text


@pytest.mark.parametrize(
    ("address", "status", "told"),
    [
        ("/runs/other", 404, "there is no run other here; there are: quickstart-1"),
        ("/runs/quickstart-1/steps/99", 404, "attempts are recorded of 16 steps from 5 to 20"),
        ("/runs/quickstart-1/steps/20/groups/9", 404, "step 20 of the run quickstart-1 has no group 9"),
        ("/runs/quickstart-1/tasks/other", 404, "has recorded no answer to a task other"),
        ("/runs/quickstart-1?page=one", 400, "page must be a whole number, got 'one'"),
        ("/runs/quickstart-1?page=0", 400, "page must be at least 1, got 0"),
        ("/runs/quickstart-1/search?order=best", 400, "order must be one of 'newest', 'oldest'"),
        ("/runs/quickstart-1/search?inside=answer", 400, "inside must be one of 'completion', 'prompt'"),
        ("/compare?a=other", 404, "there is no run other here"),
        ("/compare?of_a=7", 404, "has 4 evaluations, numbered from 0; there is no 7"),
    ],
)
def test_mistakes_are_told(looking: TestClient, address: str, status: int, told: str) -> None:
    assert told in page(looking, address, status).text
    assert said(looking, address)["said"].count(told) == 1


def test_a_record_that_cannot_be_read_is_told(tmp_path: Path) -> None:
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
    for address in ("/", "/compare", task, *(f"/runs/evil-1{end}" for end in pages)):
        found = page(looking, address)
        scripts = [a for tag, a in found.elements if tag == "script"]
        assert scripts == [{"src": "/view.js", "defer": None}], address
        assert not [a for tag, a in found.elements if tag == "img"], address
        assert not [a for _, a in found.elements if any(name.startswith("on") for name in a)], address
        assert "\x1b" not in looking.get(address).text


def test_pictures_are_shown(tmp_path: Path) -> None:
    import numpy as np

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


def test_long_attempts_are_cut_and_shown_whole_when_asked(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "long", RECIPE) as store:
        store.log_metrics(1, "rl", 1, {})
        store.write_rollouts(1, rollout_rows([trajectory(completion="word " * 1000, score=wrong("", "5"))]))
    looking = browser(tmp_path)
    address = "/runs/long-1/steps/1/groups/0"
    assert "1,004 tokens more" in page(looking, address).text
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


def test_nothing_can_be_changed(looking: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert looking.request(method, "/runs/quickstart-1").status_code == 405


def test_a_key_opens_it_once_and_for_all(whole: Path) -> None:
    looking = browser(whole, key="secret", hosts=("*",))
    assert "wants the key" in page(looking, "/", status=401).text
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
    assert ("body", {}) in page(looking, "/runs/quickstart-1").elements
    assert "25.0 % 50.0 %" in page(looking, "/").text
