"""What DGL's server cannot map, though the files are legal: parts without a row of something.

DGL 1.1.3 and 2.1.0 put every feature of a part into shared memory of its size, and a size of 0 ends
the server ("mmap failed with error Invalid argument"). Said here before any training starts.
"""

from collections.abc import Iterator

from dglrun.formats.dgl.folder import PartitionFolder

REMEDY = (
    "partition again into fewer parts, or with a method that gives every part some of each type "
    "(dglrun partition --backend random; in a job --partition-backend random), or leave the feature out"
)


def problems(folder: PartitionFolder) -> Iterator[str]:
    """Name each type and part that DGL's server cannot load, with the remedy; nothing: all can serve."""
    for part in range(folder.parts):
        yield from problems_of(folder, part)


def problems_of(folder: PartitionFolder, part: int) -> Iterator[str]:
    """The same for one part; the files of others need not be there."""
    for kind, ranges in (("node", folder.nodes), ("edge", folder.edges)):
        if not ranges.counts[part].sum():
            yield (
                f"part {part} has no {kind} at all: DGL's server cannot load it; "
                "partition again into fewer parts"
            )
        else:
            yield from _empty_features(folder, part, kind)


def _empty_features(folder: PartitionFolder, part: int, kind: str) -> Iterator[str]:
    names = folder.ntypes if kind == "node" else folder.etypes
    ranges = folder.nodes if kind == "node" else folder.edges
    featured = {name.split("/")[0] for name in folder.features(part, kind)}
    for at, name in enumerate(names):
        if name in featured and not ranges.counts[part, at]:
            yield (
                f"part {part} has no {kind} of type {name}, which has features: "
                f"DGL's server cannot load it; {REMEDY}"
            )
