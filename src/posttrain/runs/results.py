"""The results of a run as Python objects: its metrics as tables, its curves, its model."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from posttrain.runs.curves import curves
from posttrain.runs.files import write_file
from posttrain.runs.store import RunStore
from posttrain.runs.summary import summarize

Row = Mapping[str, Any]
SHOWN = 10
"""Number of rows that are shown when a table is printed."""


class Table:
    """Rows with named columns. A missing value is None."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """The columns are those of all rows, in the order in which they first occur."""
        self.columns = list(dict.fromkeys(name for row in rows for name in row))
        self.rows = [{name: row.get(name) for name in self.columns} for row in rows]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows."""
        return iter(self.rows)

    def __getitem__(self, key: int | str) -> Any:
        """A row by its number, or a column by its name. Raises `KeyError` with the columns for an unknown name."""
        if isinstance(key, int):
            return self.rows[key]
        if key not in self.columns:
            raise KeyError(f"no column '{key}'; there are: {', '.join(self.columns)}")
        return [row[key] for row in self.rows]

    def pandas(self) -> Any:
        """A ``pandas.DataFrame``; needs pandas."""
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return pandas.DataFrame(self.rows, columns=self.columns)

    def polars(self) -> Any:
        """A ``polars.DataFrame``; needs polars."""
        import polars  # type: ignore[import-not-found,unused-ignore]

        return polars.DataFrame(self.rows, infer_schema_length=None)

    def __repr__(self) -> str:
        """The first rows, with as many columns as fit."""
        lines = ["  ".join(self._shown)]
        lines += ["  ".join(_cell(row[name]) for name in self._shown) for row in self.rows[:SHOWN]]
        return "\n".join([*lines, f"{len(self.rows)} rows, {len(self.columns)} columns"])

    def _repr_html_(self) -> str:
        """The table as HTML, for a notebook."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self._shown)
        rows = ("".join(f"<td>{escape(_cell(row[name]))}</td>" for name in self._shown) for row in self.rows[:SHOWN])
        body = "".join(f"<tr>{cells}</tr>" for cells in rows)
        return f"<table><tr>{head}</tr>{body}</table><p>{len(self.rows)} rows, {len(self.columns)} columns</p>"

    @property
    def _shown(self) -> list[str]:
        """Columns that are shown when the table is printed."""
        return self.columns[:8]


class Curves:
    """The curves of a run as one SVG picture, which a notebook shows."""

    def __init__(self, folder: Path, pictures: Sequence[Mapping[str, Any]]) -> None:
        """`pictures` are those of `posttrain.runs.curves.curves`."""
        self._folder, self.pictures = folder, pictures

    @property
    def svg(self) -> dict[str, str]:
        """Each curve as SVG, by its title."""
        return {picture["title"]: str(picture["svg"]) for picture in self.pictures}

    def _repr_html_(self) -> str:
        style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
        figures = "".join(f"<figure><figcaption>{escape(t)}</figcaption>{svg}</figure>" for t, svg in self.svg.items())
        return f"<style>{style}</style><div class='charts'>{figures}</div>"

    def save(self, path: str | Path) -> Path:
        """Write a self-contained HTML page with the curves; returns its path."""
        target = Path(path)
        write_file(target, f"<!doctype html><meta charset='utf-8'>{self._repr_html_()}")
        return target

    def __repr__(self) -> str:
        """The titles of the curves, and the run's folder."""
        return f"curves of {self._folder}: {', '.join(self.svg)}; .save('curves.html') writes them"


class Result:
    """A run, finished or not, read from its folder."""

    def __init__(self, folder: str | Path) -> None:
        """Raises `UserError` if there is no run."""
        with RunStore.open(Path(folder), reading=True) as store:
            self.folder = store.folder
            self.summary: dict[str, Any] = store.summary() or summarize(store)
            """Content of ``summary.json``: accuracies with intervals, steps, tokens, seconds, by stage too."""
            self.metrics = Table(store.metrics())
            """One row per step."""
            self.evaluations = Table(store.evaluations())
            """One row per held-out evaluation."""
            self._curves = curves(store.metrics(), store.evaluations())

    @cached_property
    def rollouts(self) -> Table:
        """One row per rollout of every recorded step: prompt, completion, reward, and the signals of each token."""
        with RunStore.open(self.folder, reading=True) as store:
            return Table([row for step in store.rollout_steps() for row in store.rollouts(step)])

    @property
    def model(self) -> Path | None:
        """Folder of the final model, an ordinary Hugging Face folder; None before the run has ended."""
        path = self.folder / "model"
        return path if path.is_dir() else None

    @property
    def report(self) -> Path | None:
        """``report.html``; None before the run has ended."""
        path = self.folder / "report.html"
        return path if path.is_file() else None

    @property
    def curves(self) -> Curves:
        """Reward, accuracy, length, entropy and more, by step."""
        return Curves(self.folder, self._curves)

    def __repr__(self) -> str:
        """The run in a paragraph."""
        return str(self.summary.get("summary_line") or f"a run in {self.folder}")


def _cell(value: Any) -> str:
    """A value in a table that is shown."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
