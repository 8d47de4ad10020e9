"""The report as plain text."""

from collections.abc import Iterator, Sequence

from dglrun.arrays import Ints, imbalance
from dglrun.report.measure import Quality, percent, status


def render(quality: Quality) -> str:
    """A summary, then a row for each part and each type."""
    return "\n".join((*_summary(quality), "", *_parts(quality), "", *_types(quality), ""))


def _summary(quality: Quality) -> Iterator[str]:
    folder, found = quality.folder, status(quality)
    by = f" ({folder.backend})" if folder.backend else ""
    yield (
        f"{folder.name}: {folder.parts} parts by {folder.method}{by}, "
        f"{folder.nodes.total} nodes, {folder.edges.total} edges"
    )
    yield f"edge cut {found['edgeCut']}  halo share {found['haloShare']}"
    balances = {"nodes": "nodeBalance", "edges": "edgeBalance", "training nodes": "trainNodeBalance"}
    shown = (f"{what} {found[key]}" for what, key in balances.items() if key in found)
    yield f"balance (largest part / mean): {', '.join(shown)}"


def _parts(quality: Quality) -> list[str]:
    nodes, edges = quality.folder.nodes.counts, quality.folder.edges.counts
    rows = [["part", "nodes", "edges", "cut", "halo", *(["training"] if quality.train is not None else [])]]
    for part in range(quality.folder.parts):
        tables: list[Ints] = [nodes, edges, quality.cut, quality.halo]
        tables += [quality.train] if quality.train is not None else []
        rows.append([str(part), *(str(int(table[part].sum())) for table in tables)])
    return _aligned(rows)


def _types(quality: Quality) -> list[str]:
    folder = quality.folder
    rows = [["type", "count", "balance", "cut", "halo"]]
    for at, ntype in enumerate(folder.ntypes):
        counts = folder.nodes.counts[:, at]
        halo = str(int(quality.halo[:, at].sum()))
        rows.append([ntype, str(int(counts.sum())), f"{imbalance(counts):.2f}", "", halo])
    for at, etype in enumerate(folder.etypes):
        counts = folder.edges.counts[:, at]
        total = int(counts.sum())
        cut = percent(int(quality.cut[:, at].sum()) / total) if total else "0.0%"
        rows.append([etype, str(total), f"{imbalance(counts):.2f}", cut, ""])
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their longest entry; the first one to the left, the others to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
