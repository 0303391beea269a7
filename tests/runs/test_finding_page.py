"""The page of a diagnostic's finding."""

import math
from pathlib import Path

import pytest

from posttrain.cli import main
from posttrain.components.diagnostics import Finding, Picture
from posttrain.runs.finding_page import finding_page


def test_pictures_are_drawn_and_texts_of_others_are_only_text() -> None:
    points = [(0.0, 0.5, 0.4, 0.6), (1.0, 0.7, 0.6, 0.8), (2.0, 0.6, 0.3, 0.9)]
    picture = Picture(title="gold", caption="by <step>", points=points)
    lone = Picture(title="one value", caption="", points=[(1.0, 0.5, -math.inf, math.inf)])
    page = finding_page(
        "k", ["<b>run</b>"], Finding(values={}, lines=["a\u202eb", "it is <i>shown</i>"], pictures=[picture, lone])
    )
    assert page.count('class="chart"') == 2 and page.count('class="ribbon"') == 1
    assert "<b>run" not in page and "<i>shown" not in page and "\u202e" not in page and "by &lt;step&gt;" in page
    assert "inf" not in page.split("<main>")[1].split("</svg>")[1].split("<svg")[0]


@pytest.mark.slow
def test_a_diagnostic_writes_its_page(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "bandit", "dpo", "reinforce", "peak=20", "--page", str(tmp_path / "found.html")]) == 0
    out, err = capfd.readouterr()
    page = (tmp_path / "found.html").read_text()
    assert "wrote" in err and "posttrain diagnose bandit" in page and out.splitlines()[-1].split()[0] in page


def test_a_page_without_a_folder_is_refused_before_measuring(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "bandit", "dpo", "--page", str(tmp_path / "no" / "found.html")]) == 2
    assert "make it first" in capfd.readouterr().err
