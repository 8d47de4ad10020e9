"""Which names DGL can carry from a chunked graph to its servers.

The rules come from how DGL composes and splits names: `src:rel:dst` at colons, `type/feature` at the
slash, key-value store and shared-memory names at the tilde.
"""

from collections.abc import Iterable, Mapping

MAX_SHARED_MEMORY_NAME = 255
"""Bytes in the name of a file in /dev/shm."""


def problem(
    graph: str,
    ntypes: tuple[str, ...],
    etypes: tuple[str, ...],
    node_data: Mapping[str, Iterable[str]],
    edge_data: Mapping[str, Iterable[str]],
) -> str | None:
    """Say what is wrong with the names of a graph; None: nothing."""
    checks = (
        _bad("graph_name", graph, "/~"),
        *(_bad("node_type", name, ":/~") for name in ntypes),
        _twice("node_type", ntypes),
        _twice("edge_type", etypes),
        _reserved(ntypes),
        *(_bad_etype(name, ntypes) for name in etypes),
        *(_bad_feature("node", kind, name) for kind, found in node_data.items() for name in found),
        *(_bad_feature("edge", kind, name) for kind, found in edge_data.items() for name in found),
    )
    return next((text for text in checks if text), None)


def _bad(key: str, name: str, forbidden: str) -> str | None:
    if not name or name in (".", "..") or any(mark in name for mark in forbidden + "\0\n\r"):
        marks = " ".join(forbidden)
        return f"{key}: DGL cannot load a name that is empty, a dot, or holds any of {marks}; got {name!r}"
    return None


def _twice(key: str, names: tuple[str, ...]) -> str | None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    return f"{key}: {repeated[0]!r} is named twice" if repeated else None


def _reserved(ntypes: tuple[str, ...]) -> str | None:
    if len(ntypes) > 1 and "_N" in ntypes:
        return "node_type: DGL takes '_N' for all nodes, so a graph of several node types cannot use it"
    return None


def _bad_etype(etype: str, ntypes: tuple[str, ...]) -> str | None:
    ends = etype.split(":")
    if len(ends) != 3:
        return f"edge_type: expected 'source:relation:destination', got {etype!r}"
    for end in (ends[0], ends[2]):
        if end not in ntypes:
            return f"edge_type {etype!r}: {end!r} is none of the node types {list(ntypes)}"
    return _bad("edge_type", ends[1], "/~")


def _bad_feature(kind: str, owner: str, name: str) -> str | None:
    if text := _bad(f"{kind}_data/{owner}", name, "/~"):
        return text
    shared = f"{kind}~{owner}~{name}-kvdata-"
    if len(shared.encode()) > MAX_SHARED_MEMORY_NAME:
        return f"{kind}_data/{owner}/{name}: type and feature name are too long for DGL's shared memory"
    return None
