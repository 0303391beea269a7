"""Makes the description that a package index shows: README.md with links that lead somewhere there too.

Relative links become absolute ones below `Source` of `[project.urls]` in pyproject.toml. Where that is not set, as in a
copy without a public address, their text stays and pictures are left out.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>(?:`[^`]*`|[^\]`])*)\]\((?P<target>[^)\s]+)\)")
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
FENCE = re.compile(r"(^```.*?^```[ \t]*$)", re.DOTALL | re.MULTILINE)


def description(readme: str, source: str | None) -> str:
    """The text of a README for an index; `source` is the address at which the files of the repository are."""

    def link(found: re.Match[str]) -> str:
        target = found["target"]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        if source is not None:
            kind = "raw" if found["picture"] else "blob"
            return f"{found['picture']}[{found['text']}]({source.rstrip('/')}/{kind}/main/{target})"
        return "" if found["picture"] else found["text"]

    parts = FENCE.split(readme)  # code at odd places stays as it is
    parts[::2] = [LINK.sub(link, COMMENT.sub("", part)) for part in parts[::2]]
    return "".join(parts)


if __name__ == "__main__":
    settings = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=description(
            (HERE / "README.md").read_text(encoding="utf-8"), settings.get("urls", {}).get("Source")
        ),
        long_description_content_type="text/markdown",
    )
