"""The documentation: every example runs, every `make` target and every link in it is there.

```bash and ```python blocks of a page run in order in one temporary folder, where `posttrain` is on the path. A block
with the word ``text`` in its first line is only shown. ``<!-- test: skip REASON -->`` on the line before a block leaves
it out; ``<!-- test: slow -->`` anywhere in a page keeps it out of `make test-fast`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.warm import BEFORE, POSSIBLE, Warm

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RULES = [ROOT / "AGENTS.md", ROOT / "CONTRIBUTING.md"]
FENCE = re.compile(r"^(?P<mark>```+)(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=mark)[ \t]*$", re.MULTILINE | re.DOTALL)
SKIP = re.compile(r"<!-- test: skip (.*?)-->\s*\Z")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    line: int
    skip: str | None
    """Why it does not run here."""


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page that are programs, in order."""
    for found in FENCE.finditer(text):
        words = found["info"].split()
        if words and words[0] in ("bash", "python") and "text" not in words:
            skip = SKIP.search(text[: found.start()])
            line = text.count("\n", 0, found.start()) + 1
            yield Block(language=words[0], code=found["code"], line=line, skip=skip and skip[1].strip())


def make_targets(text: str) -> set[str]:
    """The targets that the bash blocks of a page call."""
    lines = "\n".join(block.code for block in blocks(text) if block.language == "bash")
    return {
        word
        for call in re.findall(r"^\s*make\b(.*)$", lines, re.MULTILINE)
        for word in call.partition("#")[0].split()
        if not word.startswith("-") and "=" not in word
    }


def environment(*first: Path) -> dict[str, str]:
    """The variables of an example; these folders come first on its path."""
    path = os.pathsep.join([*map(str, first), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "COLUMNS": "100"}


def run(block: Block, folder: Path, place: str, *first: Path, before: str = "") -> None:
    """Run one block, or fail with its place and everything that it printed; `first` on its path are these folders, and
    `before` is run in their programs before their commands.
    """
    if block.language == "bash":
        lines = [line for line in block.code.splitlines() if not re.match(r"\s*make\b", line)]
        command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
    else:
        script = folder / f"block_at_line_{block.line}.py"
        script.write_text(block.code)
        command = [sys.executable, script.name]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(*first) | ({BEFORE: before} if before else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        pytest.fail(f"{place} ended with exit code {done.returncode}:\n{block.code}\n{done.stdout}", pytrace=False)


def page_parameter(page: Path) -> object:
    """A page as a test's parameter, marked when it is slow."""
    slow = page.exists() and "<!-- test: slow -->" in page.read_text()
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.slow] if slow else [])


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], list[Path]]]:
    """A folder with a `posttrain` that starts in milliseconds, made when it is first asked for."""
    made = list[Warm]()

    def folders() -> list[Path]:
        if POSSIBLE and not made:
            made.append(Warm(tmp_path_factory.mktemp("warm"), environment()))
        return [one.folder for one in made]

    yield folders
    for one in made:
        one.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page_parameter(page) for page in PAGES])
def test_every_example_runs(
    page: Path, tmp_path: Path, warm: Callable[[], list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the front page `posttrain` is the installed program, in slow pages one that is forked.

    So are the runs of a comparison.
    """
    text = page.read_text()
    first = warm() if "<!-- test: slow -->" in text and page.name != "README.md" else []
    forks = (
        f"import sys; sys.executable = {str(first[0] / 'posttrain')!r}" if first and page.name == "compare.md" else ""
    )
    for block in blocks(text):
        place = f"{page.relative_to(ROOT)}:{block.line}"
        if block.skip is None:
            run(block, tmp_path, place, *first, before=forks)
        else:
            with capsys.disabled():
                print(f"\n{place} is not run: {block.skip}")


def slug(heading: str) -> str:
    """The anchor of a heading, as code hosts and the site make it."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain))


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)}


def broken_links(page: Path) -> list[str]:
    """The links of a page that lead to no file, or to no heading of it."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)[^)]*\)", FENCE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES + RULES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_and_links_are_there(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+)(?: [\w -]+)?:", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert make_targets(page.read_text()) <= targets
    assert not broken_links(page), f"{page.relative_to(ROOT)} links to what is not there"


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One `word`, two\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md) [b](other.md#one-word-two) [c](#here) [d](https://example.org/x)\n"
        "[e](gone.md) [f](other.md#three) [g](#there)\n```text\n[h](gone.md)\n```\n"
    )
    assert broken_links(page) == ["gone.md", "other.md#three", "#there"]


def test_the_first_pages_are_short() -> None:
    for page, most in (("README.md", 200), ("docs/architecture.md", 150)):
        assert len((ROOT / page).read_text().splitlines()) <= most, page


def test_the_map_is_true() -> None:
    page, package = (ROOT / "docs" / "architecture.md").read_text(), ROOT / "src" / "posttrain"
    files = re.findall(r"`((?:[\w]+/)+(?:\w+\.py)?)(?:: ([\w.]+))?`", page)
    assert len(files) > 10
    for path, name in files:
        found = [folder / path for folder in (package, package / "components", ROOT) if (folder / path).exists()]
        assert found, f"docs/architecture.md names {path}"
        for part in name.split(".") if name else ():
            assert re.search(rf"\b(class|def) {part}\b", found[0].read_text()), f"{path} has no {part}"
    rooms = {path.stem for path in package.iterdir() if not path.name.startswith(("_", "py.typed"))}
    map_of_rooms = page[page.index("src/posttrain/\n") : page.index("tests/  ")]
    assert not (missing := {room for room in rooms if not re.search(rf"\b{room}\b", map_of_rooms)}), missing


def test_decisions_are_complete_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for number, page in enumerate(sorted(folder.glob("[0-9]*.md")), start=1):
        text = page.read_text()
        assert page.name.startswith(f"{number:04}-") and text.startswith(f"# {number}. ")
        assert all(f"**{part}.**" in text for part in ("Context", "Decision", "Cost")), page.name
        assert f"| {number} | [{text.splitlines()[0].split('. ', 1)[1]}]({page.name})" in index, page.name


@pytest.mark.parametrize("page", RULES, ids=lambda page: page.name)
def test_the_rules_are_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 60


PAGE = """
```bash
make test PYTHON=x -j2   # all of it
cat > a.txt <<'END'
1
END
```

<!-- test: skip needs a GPU -->
```python
print(2)
```
```python text
print(3)
```
````text
```bash
false
```
````
```yaml
a: 1
```
```python
assert open("a.txt").read() == "1\\n"
```
"""


def test_blocks_are_found() -> None:
    found = list(blocks(PAGE))
    assert [(b.language, b.line, b.skip) for b in found] == [
        ("bash", 2, None),
        ("python", 10, "needs a GPU"),
        ("python", 24, None),
    ]
    assert make_targets(PAGE) == {"test"}


def test_blocks_run_in_one_folder_and_a_failure_has_its_place(tmp_path: Path) -> None:
    first, _, last = blocks(PAGE)
    run(first, tmp_path, "page:2")
    run(last, tmp_path, "page:24")
    broken = Block(language="bash", code="echo before\nfalse | true\n", line=7, skip=None)
    with pytest.raises(pytest.fail.Exception, match=r"page:7 ended with exit code 1:\n(.|\n)*before"):
        run(broken, tmp_path, "page:7")
