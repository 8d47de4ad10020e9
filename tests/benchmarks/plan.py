"""A plan for a graph that no machine here can hold, by arithmetic from the measured tables of docs/.

    python -m tests.benchmarks.tables plan

Nothing is measured: whoever measures one of those tables anew writes this one, too, and a test says where
that was forgotten.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dglrun.partitioning.distributed.streaming import PASSES
from tests.support import measured
from tests.support.measured import TABLES, Table

MACHINES = 64
"""One rank with one CPU on each, and as many parts."""
MILLION_EDGES, MILLION_NODES = 10_000, 1_000
"""Of the graph; edges in each direction count, as in the graphs measured."""
_VALUES = 64
"""float32 values of each node, as in the dispatch that is measured with features."""
_ASSIGNED = 44
"""Millions of edges of the graphs in the table `assign`."""
_CHUNKED = 100
"""Millions of edges of the tables in the table `chunk-large`."""
_HALF_EDGE, _CONSTRAINTS = 16, 2
"""Bytes of the rows for each half-edge; constraints of 8 bytes for each own node."""
_GIGABIT = 10
_GROWTH = ("40,000,000", "80,000,000")
_TARGETS = (
    ("4,000,000 / 80,000,000 / 0", "2, 2"),
    ("4,000,000 / 400,000,000 / 0", "2, 2"),
    ("4,000,000 / 40,000,000 / 64", "2, 2"),
)
"""Graphs without features, the larger of which tells what an edge costs, and one with them, of one run."""
Cells = list[str]
Tables = Mapping[str, list[Cells]]


@dataclass(frozen=True)
class Costs:
    """What was measured.

    Attributes:
        assigning: CPU seconds of streaming for each million edges.
        edge: CPU seconds of dispatch for each million edges, ranks and features left out.
        node: The same for the features of each million nodes.
        held: Bytes of memory for each edge that a rank holds.
        written: Bytes of output for each edge.
        checking: CPU seconds of the check for each million edges, their nodes and features included.
        joining: CPU seconds of `dglrun chunk --config` for each million edges of tables with string IDs.
        joined: Bytes of disk that this takes at most, for each edge.
    """

    assigning: float
    edge: float
    node: float
    held: float
    written: float
    checking: float
    joining: float
    joined: float


def read(table: Table) -> list[Cells]:
    """The rows of a table, as they stand in its page."""
    page = table.path.read_text()
    block = page[page.index(table.begin) : page.index(table.end)]
    lines = [line for line in block.splitlines() if line.startswith("|")][2:]
    return [measured.cells(line) for line in lines]


def rows(tables: Tables | None = None) -> Iterator[Cells]:
    """Rows of the table `plan`.

    Args:
        tables: By name, what `read` gives; None: those of docs/.

    Raises:
        ValueError: a table lacks a row that the plan rests on.
    """
    costs = _costs(
        {name: read(TABLES[name]) for name in TABLES["plan"].rests_on} if tables is None else tables
    )
    edges, nodes = MILLION_EDGES / MACHINES, MILLION_NODES / MACHINES
    yield from _seconds(costs, edges, nodes)
    yield from _bytes(costs, edges, nodes)
    yield from _on_one_machine(costs)


def _seconds(costs: Costs, edges: float, nodes: float) -> Iterator[Cells]:
    """CPU time of a rank with so many million edges and nodes."""
    by_edge = "{:.3f} CPU s for each million edges"
    features = f", {costs.node:.2f} for the {_VALUES} values of each million nodes"
    stages = {
        "assignment by `streaming`": (by_edge.format(costs.assigning), costs.assigning * edges),
        "dispatch": (by_edge.format(costs.edge) + features, costs.edge * edges + costs.node * nodes),
        "check of the parts": (by_edge.format(costs.checking), costs.checking * edges),
    }
    for what, (how, seconds) in stages.items():
        yield [f"{what}: CPU", how, f"{seconds:.0f} s"]
    yield ["together: CPU", "", f"{sum(seconds for _, seconds in stages.values()):.0f} s"]


def _bytes(costs: Costs, edges: float, nodes: float) -> Iterator[Cells]:
    """Memory, network and disk of a rank with so many million edges and nodes."""
    every = MILLION_NODES / 1e3
    of_rows, of_own = 2 * edges * _HALF_EDGE / 1e3, 8 * _CONSTRAINTS * nodes / 1e3
    kinds = f"{_HALF_EDGE} bytes for each half-edge, 1 for each node, 8 for each constraint of an own node"
    yield ["assignment: memory", kinds, f"{of_rows:.1f} + {every:.1f} + {of_own:.1f} GB"]
    yield ["dispatch: memory", f"{costs.held:.1f} bytes for each edge", f"{costs.held * edges / 1e3:.1f} GB"]
    received = PASSES * every
    passes = f"1 byte for each node of the graph in each of at most {PASSES} passes"
    yield [
        "assignment: network",
        passes,
        f"{received:.0f} GB, {8 * received / _GIGABIT:.0f} s at {_GIGABIT} Gbit/s",
    ]
    kinds = f"{costs.written:.0f} bytes for each edge with original IDs, {4 * _VALUES} for each node"
    yield ["output: disk", kinds, f"{costs.written * edges / 1e3:.1f} + {4 * _VALUES * nodes / 1e3:.1f} GB"]


def _on_one_machine(costs: Costs) -> Iterator[Cells]:
    """What a chunked graph takes, if it is made of tables with string IDs; no ranks share that."""
    hours, terabytes = costs.joining * MILLION_EDGES / 3600, costs.joined * MILLION_EDGES / 1e6
    by_edge = f"{costs.joining:.2f} CPU s for each million edges, {costs.joined:.0f} bytes for each edge"
    one_machine = f"on one machine {hours:.1f} h, {terabytes:.1f} TB"
    yield ["before: tables with string IDs, CPU and disk", by_edge, one_machine]


def _costs(tables: Tables) -> Costs:
    assigned = _row(tables, "assign", "communities", str(MACHINES), "streaming, 4 ranks")
    growth = [_row(tables, "dispatch-growth", "dglrun", f"4,000,000 / {edges} / 0") for edges in _GROWTH]
    few, many, wide = (_row(tables, "dispatch-targets", "dispatch", *shape) for shape in _TARGETS)
    held = next(cells for cells in tables["dispatch-targets"] if "bytes more for each edge" in cells[7])
    checked = _row(
        tables, "verify", "2,000,000 / 20,000,000 / 64", "parquet", "2", "count and verify by sums"
    )
    chunked = _row(tables, "chunk-large", "4Gi", "csv", f"{_CHUNKED},000,000")
    output = [float(cells[7]) for cells in growth]
    return Costs(
        assigning=_cpu(assigned[3]) / _ASSIGNED,
        edge=float(many[3]) / 400,
        node=(float(wide[3]) - float(few[3]) / 2) / 4,
        held=float(held[7].split()[0]),
        written=(output[1] - output[0]) * 2**20 / 20e6,
        checking=float(checked[5]) / 20,
        joining=_cpu(chunked[4]) / _CHUNKED,
        joined=float(chunked[6]) * 2**20 / (_CHUNKED * 1e6),
    )


def _row(tables: Tables, name: str, *cells: str) -> Cells:
    """The first row of a table that has all these cells."""
    for found in tables[name]:
        if all(cell in found for cell in cells):
            return found
    raise ValueError(f"table {name}: expected a row with {', '.join(cells)}")


def _cpu(pair: str) -> float:
    """Of `wall / CPU`."""
    return float(pair.split(" / ")[1])
