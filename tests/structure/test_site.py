"""The static site: built from the same files without the network, complete, and without a broken link."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from posttrain.recipes.catalogue import entries, families
from posttrain.recipes.pages.experiments import Experiment
from tests.structure.test_generated_docs import script

ROOT = Path(__file__).resolve().parents[2]
BUILD = """
import socket, sys
def refuse(*_):
    raise OSError("the site is built without the network")
socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli(["build", "--strict", "--quiet", "--site-dir", sys.argv[1]])
"""


class Links(HTMLParser):
    """The links, the anchors, and what a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given["id"]} if "id" in given else set()
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "link"):
            self.loaded += [given[name] for name in ("src", "href") if name in given]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    pytest.importorskip("material", reason="the site needs mkdocs-material")
    folder = tmp_path_factory.mktemp("site")
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def broken(pages: dict[Path, Links]) -> Iterator[str]:
    """The links between pages that lead nowhere."""
    for page, found in pages.items():
        for link in (*found.links, *found.loaded):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                yield f"{page}: {link}"


@pytest.mark.slow
def test_the_site_is_complete_and_loads_nothing(site: Path) -> None:
    pages = {page.resolve(): Links(page.read_text()) for page in site.rglob("*.html") if page.name != "404.html"}
    assert not list(broken(pages))
    for entry in entries("recipe"):
        assert (site / "methods" / entry.area / f"{entry.name}.html").is_file(), entry.name
    for family, folder in families().items():
        assert family in ("recipe", "setting") or (site / "components" / f"{folder.name}.html").is_file(), family
    fetched = {link for found in pages.values() for link in found.loaded if re.match(r"(https?:)?//", link)}
    assert not fetched, "a page that fetches something from the network"
    assert not list(site.rglob("*.py")), "scripts are no part of the site"


@pytest.mark.slow
def test_the_site_leads_links_to_the_code_to_the_pages_made_from_it(site: Path) -> None:
    home = Links((site / "index.html").read_text())
    assert "methods/policy_gradient/grpo.html" in home.links
    assert not [link for link in home.links if "src/posttrain" in link]
    listing = Links((site / "methods.html").read_text())
    assert "methods/credit/gigpo.html" in listing.links and "methods/credit/README.html" not in listing.links


def test_a_broken_link_of_the_site_is_found(tmp_path: Path) -> None:
    texts = {"a.html": '<a href="b.html#x"><a href="c.html"><a href="#y"><img src="https://e.org/f.png">', "b.html": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    pages = {(tmp_path / name).resolve(): Links(text) for name, text in texts.items()}
    assert [problem.rpartition(": ")[2] for problem in broken(pages)] == ["b.html#x", "c.html", "#y"]


def experiment(**contender: object) -> Experiment:
    """Two contenders with the same numbers."""
    spread = {"mean": 0.5, "interval": [0.25, 0.75], "values": [0.0, 1.0]}
    rows = tuple({"contender": name, "acc": spread, **contender} for name in ("a", "b <x>"))
    return Experiment(name="n", title="A < B", rows=(1,), text="", command="", measures=("acc",), contenders=rows)


def test_a_picture_has_a_dot_for_each_seed_at_its_place() -> None:
    figures = script("figures")
    svg = ET.fromstring(figures.picture(experiment()))
    space = "{http://www.w3.org/2000/svg}"
    dots = [float(dot.attrib["cx"]) for dot in svg.iter(f"{space}circle")]
    assert dots == [figures.LEFT, figures.WIDTH - figures.RIGHT] * 2
    [title] = svg.iter(f"{space}title")
    assert title.text == "A < B: acc of each seed, mean and 95 % interval"
    middle = (figures.LEFT + figures.WIDTH - figures.RIGHT) / 2
    assert [path.attrib["d"].startswith(f"M{middle:.1f},") for path in svg.iter(f"{space}path")][-1]


def test_curves_are_those_of_what_was_measured() -> None:
    shown, found = script("figures").shown, experiment()
    assert shown(found, ["loss", "acc"]) == "acc", "losses of two objectives cannot be compared"
    assert shown(replace(found, measures=("acc:last5", "reward:mean")), ["loss", "acc", "reward"]) == "reward"
    assert shown(found, ["reward", "entropy"]) == "reward"


def test_a_picture_has_curves_where_steps_were_kept() -> None:
    figures = script("figures")
    curve = {"steps": [1, 2], "mean": [0.0, 1.0], "interval": [[0.0, 0.0], [0.5, 1.0]]}
    svg = figures.picture(experiment(curves={"reward": curve}))
    lines = [line.attrib["points"] for line in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}polyline")]
    bottom = figures.TOP + 260
    assert lines == [f"{figures.LEFT}.0,{bottom}.0 {figures.WIDTH - figures.RIGHT}.0,{figures.TOP}.0"] * 2
    assert not re.search(r"(url|href)\W+https?:", svg)
