"""The report as charts: bars for each part, in one HTML file without outside references, or PNG."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dglrun.arrays import Ints
from dglrun.report import table
from dglrun.report.measure import Quality

COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#e15759", "#9c755f")
_WIDTH, _BAR, _LABEL = 640, 22, 60


@dataclass(frozen=True)
class Panel:
    """A chart: one stacked bar for each part.

    Attributes:
        title: What is counted.
        names: What the pieces of a bar stand for.
        counts: int64, shape (parts, names).
    """

    title: str
    names: Sequence[str]
    counts: Ints


def panels(quality: Quality) -> list[Panel]:
    """The charts of a report."""
    folder = quality.folder
    kept = folder.edges.counts.sum(axis=1) - quality.cut.sum(axis=1)
    cut = _columns(kept, quality.cut.sum(axis=1))
    halo = _columns(folder.nodes.counts.sum(axis=1), quality.halo.sum(axis=1))
    found = [
        Panel("Nodes by type", folder.ntypes, folder.nodes.counts),
        Panel("Edges by type", folder.etypes, folder.edges.counts),
        Panel("Edges inside the part and cut", ("inside", "cut"), cut),
        Panel("Own nodes and halo", ("own", "halo"), halo),
    ]
    if quality.train is not None:
        found.append(Panel("Training nodes by type", folder.ntypes, quality.train))
    return found


def _columns(*columns: Ints) -> Ints:
    return np.stack(columns, axis=1)


def write_html(quality: Quality, path: Path) -> None:
    """Write one self-contained page: the table and the charts as SVG."""
    charts = "\n".join(_svg(panel) for panel in panels(quality))
    name = html.escape(quality.folder.name)
    path.write_text(
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Partition of {name}</title>\n'
        "<style>body{font:14px sans-serif;margin:2em;max-width:60em}pre{background:#f4f4f4;padding:1em}"
        "svg{display:block;margin:1em 0}</style>\n"
        f"<h1>Partition of {name}</h1>\n<pre>{html.escape(table.render(quality))}</pre>\n{charts}\n</html>\n"
    )


def _svg(panel: Panel) -> str:
    parts = len(panel.counts)
    largest = max(int(panel.counts.sum(axis=1).max(initial=0)), 1)
    bars = "".join(_bar(panel, part, largest) for part in range(parts))
    legend = "".join(_legend(at, name, 30 + parts * _BAR) for at, name in enumerate(panel.names))
    height = 40 + parts * _BAR + 18 * len(panel.names)
    return (
        f'<svg role="img" width="{_LABEL + _WIDTH + 110}" height="{height}" font-size="12">'
        f'<text x="0" y="14" font-weight="bold">{html.escape(panel.title)}</text>{bars}{legend}</svg>'
    )


def _bar(panel: Panel, part: int, largest: int) -> str:
    y, x = 22 + part * _BAR, float(_LABEL)
    pieces = [f'<text x="0" y="{y + 14}">part {part}</text>']
    for at, count in enumerate(panel.counts[part].tolist()):
        width = _WIDTH * count / largest
        hint = html.escape(f"{panel.names[at]}: {count}")
        pieces.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR - 4}" fill="{_colour(at)}">'
            f"<title>{hint}</title></rect>"
        )
        x += width
    pieces.append(f'<text x="{x + 5:.1f}" y="{y + 14}">{int(panel.counts[part].sum())}</text>')
    return "".join(pieces)


def _legend(at: int, name: str, top: int) -> str:
    y = top + 18 * at
    return (
        f'<rect x="{_LABEL}" y="{y}" width="12" height="12" fill="{_colour(at)}"/>'
        f'<text x="{_LABEL + 18}" y="{y + 11}">{html.escape(name)}</text>'
    )


def _colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]


def write_png(quality: Quality, path: Path) -> None:
    """Draw the charts with matplotlib.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an optional package
    from matplotlib.figure import Figure  # noqa: PLC0415

    found = panels(quality)
    figure = Figure(figsize=(9, 2.4 * len(found)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(len(found), squeeze=False)[:, 0], found, strict=True):
        left = panel.counts[:, 0] * 0
        for at, name in enumerate(panel.names):
            axes.barh(range(len(left)), panel.counts[:, at], left=left, color=_colour(at), label=name)
            left = left + panel.counts[:, at]
        axes.set_title(panel.title, loc="left")
        axes.set_yticks(range(len(left)), [f"part {part}" for part in range(len(left))])
        axes.invert_yaxis()
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, format="png")
