"""The keys of the viewer, in a real browser: a page with its script, and another one that presses keys."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from posttrain.runs.store import RunStore, rollout_rows
from tests.runs.made_runs import RECIPE, right, trajectory
from tests.viewer.looking import browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step with two groups of three rollouts."""
    root = tmp_path_factory.mktemp("runs")
    with RunStore.create(root, "run", RECIPE) as store:
        store.log_metrics(1, "rl", 1, {})
        made = [trajectory(key=f"t{g}", sample=i, score=right("5")) for g in (0, 1) for i in range(3)]
        store.write_rollouts(1, rollout_rows(made, groups=[0, 0, 0, 1, 1, 1]))
    return root


def after(place: Path, tmp_path: Path, address: str, keys: str, *, inside: str = "body") -> str:
    """The page after keys were pressed in an element, with the clicks on links that they made in its title."""
    looking = browser(place)
    pressing = """
      document.title = "";
      addEventListener("click", (event) => {
        const link = event.target.closest("a");
        if (link) { event.preventDefault(); document.title += " " + link.getAttribute("href"); }
      });
      for (const key of KEYS.split(" "))
        document.querySelector("INSIDE").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    """
    script = looking.get("/view.js").text + pressing.replace("KEYS", repr(keys)).replace("INSIDE", inside)
    html = looking.get(address).text.replace('<script src="/view.js" defer></script>', "")
    file = tmp_path / "page.html"
    file.write_text(html.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom"]
    done = subprocess.run(
        [str(CHROMIUM), *options, file.as_uri()], capture_output=True, text=True, timeout=120, check=False
    )
    assert "</html>" in done.stdout, done.stderr[-500:]
    return done.stdout


def chosen(html: str) -> list[str]:
    """Ids of the rollouts that are marked as the present one."""
    return re.findall(r'<div class="rollout at" id="(rollout-\d+)"', html)


@pytest.mark.parametrize(
    ("keys", "found"),
    [("j", "rollout-0"), ("j j", "rollout-1"), ("j j k", "rollout-0"), ("j j j j j", "rollout-2"), ("k", "rollout-0")],
)
def test_j_and_k_go_from_one_rollout_to_the_next(place: Path, tmp_path: Path, keys: str, found: str) -> None:
    assert chosen(after(place, tmp_path, "/runs/run-1/steps/1/groups/0", keys)) == [found]


def test_arrows_turn_pages_and_enter_opens(place: Path, tmp_path: Path) -> None:
    html = after(place, tmp_path, "/runs/run-1/steps/1/groups/0", "ArrowRight")
    assert re.search(r"<title>\s*/runs/run-1/steps/1/groups/1", html)
    html = after(place, tmp_path, "/runs/run-1/steps/1", "j j Enter")
    assert re.search(r"<title>\s*/runs/run-1/steps/1/groups/1<", html), "the second row"


def test_a_question_mark_explains_and_typing_is_left_alone(place: Path, tmp_path: Path) -> None:
    address = "/runs/run-1/steps/1/groups/0"
    assert re.search(r'<dialog class="keys"[^>]* open', after(place, tmp_path, address, "?"))
    html = after(place, tmp_path, address, "? j", inside="textarea")
    assert not re.search(r"<dialog[^>]* open", html) and chosen(html) == []
