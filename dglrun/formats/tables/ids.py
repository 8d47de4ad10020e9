"""Joins of IDs, by DuckDB (PyPI duckdb, MIT licence): distinct, duplicate and missing ones, numbers for IDs.

It reads and writes Parquet files, works in the memory that it is given and beyond that in a folder on disk.
Rows keep their order by their number in the file.
"""

import errno
import glob
import importlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pyarrow.parquet as pq

from dglrun import cgroup
from dglrun.errors import BackendFailedError, BackendMissingError

NO_NODE = -1
"""Number of an end that is no node."""
_BYTES_PER_ID = 64
"""Memory that is reckoned for each ID of which one is to be kept, if all differ."""
_MAX_GROUPS = 512
_MIB_PER_THREAD = 512
"""Each thread holds blocks of its own."""


def load() -> ModuleType:
    """Find the package.

    Raises:
        BackendMissingError: it is not installed.
    """
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        text = "install it (pip install 'dgl-operator[tables]')"
        raise BackendMissingError(f"--config: {error}; {text}") from error


class Joins:
    """One DuckDB in this process."""

    def __init__(self, work: Path, memory_mib: int) -> None:
        """Start it.

        Args:
            work: Folder for what does not fit into memory.
            memory_mib: What it may use.

        Raises:
            BackendMissingError: the package is not installed.
        """
        self._memory_mib, self._library = memory_mib, load()
        self._work = work
        settings = {
            "memory_limit": f"{memory_mib}MiB",
            "temp_directory": str(work / "spill"),
            "threads": max(1, min(int(cgroup.cpu_limit()), memory_mib // _MIB_PER_THREAD)),
            "preserve_insertion_order": False,  # of what has no ORDER BY: would hold rows back in memory
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        self._connection = self._library.connect(":memory:", config=settings)
        # Its own thread: in the main one DuckDB would take the exception of a signal for its own.
        self._thread = ThreadPoolExecutor(1, "duckdb")

    def close(self) -> None:
        """End it, and a query that runs."""
        self._connection.interrupt()
        self._thread.shutdown()
        self._connection.close()

    def duplicate(self, mapping: Path) -> tuple[int, int] | None:
        """The first two rows of an ID that a file has twice, the first such ID; None: there is none."""
        source = _rows(mapping)
        first = self._one(
            f"SELECT min(file_row_number) FROM {source} GROUP BY id HAVING count(*) > 1 ORDER BY 1 LIMIT 1"
        )
        if first is None:
            return None
        twin = self._one(
            f"SELECT min(a.file_row_number) FROM {source} a, {source} b "
            f"WHERE b.file_row_number = {first[0]} AND a.id = b.id AND a.file_row_number > {first[0]}"
        )
        return int(first[0]), int((twin or first)[0])

    def unlisted(self, ends: Sequence[tuple[Path, str]], mapping: Path | None, out: Path) -> None:
        """Write the IDs of columns that a mapping lacks, each once, sorted: column `id`.

        Args:
            ends: Files with their columns; at least one.
            mapping: Has a column `id`; None: the mapping is empty.
            out: The Parquet file to write.
        """
        columns = (f"SELECT {column} AS id FROM {_file(path)}" for path, column in ends)
        source = f"({' UNION ALL '.join(columns)})"
        rows = sum(pq.ParquetFile(path).metadata.num_rows for path, _ in ends)
        groups = -(-rows * _BYTES_PER_ID // (self._memory_mib << 20))
        with tempfile.TemporaryDirectory(dir=self._work) as folder:
            once = self._distinct(source, min(max(1, groups), _MAX_GROUPS), Path(folder))
            known = "" if mapping is None else f" ANTI JOIN {_file(mapping)} AS known USING (id)"
            self._copy(f"SELECT id FROM {once}{known} ORDER BY id", out)

    def _distinct(self, source: str, groups: int, folder: Path) -> str:
        """IDs, each once: what to select them from.

        DuckDB (2.0) ends for want of memory where the distinct texts do not fit, though it may spill. So the
        IDs are put into groups by their hash first, each of which fits.
        """
        if groups == 1:
            return f"(SELECT DISTINCT id FROM {source})"
        split, once = folder / "split", folder / "once"
        once.mkdir()
        self._run(
            f"COPY (SELECT id, hash(id) % {groups} AS part FROM {source}) "
            f"TO {_text(str(split))} (FORMAT parquet, PARTITION_BY (part))"
        )
        for at in range(groups):
            if (part := split / f"part={at}").is_dir():
                found = f"read_parquet({_text(f'{_pattern(part)}/*.parquet')}, hive_partitioning=false)"
                self._copy(f"SELECT DISTINCT id FROM {found}", once / f"{at}.parquet")
                shutil.rmtree(part)
        return f"read_parquet({_text(f'{_pattern(once)}/*.parquet')})"

    def numbers(self, edges: Path, sources: Path, destinations: Path, out: Path) -> None:
        """Write the numbers of edges' ends, in the order of the edges: columns `src` and `dst`.

        Args:
            edges: Has the IDs, columns `src` and `dst`.
            sources: Mapping of the sources, columns `id` and `node`.
            destinations: Mapping of the destinations.
            out: The Parquet file to write; an ID that its mapping lacks becomes NO_NODE.
        """
        self._copy(
            f"SELECT coalesce(s.node, {NO_NODE}) AS src, coalesce(d.node, {NO_NODE}) AS dst "
            f"FROM {_rows(edges)} AS e "
            f"LEFT JOIN {_file(sources)} AS s ON e.src = s.id "
            f"LEFT JOIN {_file(destinations)} AS d ON e.dst = d.id ORDER BY e.file_row_number",
            out,
        )

    def first_without_node(self, edges: Path, numbers: Path) -> tuple[int, str, Any] | None:
        """The first edge of which an end is no node: its row, `src` or `dst`, the ID; None: no such edge."""
        row = self._one(
            f"SELECT min(file_row_number) FROM {_rows(numbers)} WHERE src = {NO_NODE} OR dst = {NO_NODE}"
        )
        if row is None or row[0] is None:
            return None
        found = self._one(
            f"SELECT n.src = {NO_NODE}, e.src, e.dst "
            f"FROM {_rows(edges)} AS e, "
            f"{_rows(numbers)} AS n "
            f"WHERE e.file_row_number = {row[0]} AND n.file_row_number = {row[0]}"
        )
        assert found is not None  # noqa: S101 - the row is there
        is_src, src, dst = found
        return int(row[0]), "src" if is_src else "dst", src if is_src else dst

    def _copy(self, query: str, out: Path) -> None:
        self._run(f"COPY ({query}) TO {_text(str(out))} (FORMAT parquet)")

    def _one(self, query: str) -> tuple[Any, ...] | None:
        return next(iter(self._run(query)), None)

    def _run(self, query: str) -> list[tuple[Any, ...]]:
        """The rows that a query gives; an exception of a signal comes while it runs, and `close` ends it."""
        try:
            return self._thread.submit(lambda: list(self._connection.execute(query).fetchall())).result()
        except self._library.Error as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        """Raise what the user is told."""
        text = " ".join(str(error).split())[:300]
        if isinstance(error, self._library.OutOfMemoryException) and "offload" not in text:
            raise BackendFailedError(f"memory_mib: {self._memory_mib} is too little: {text}") from error
        if "No space left" in text or "offload" in text or "max_temp_directory_size" in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._work)) from error
        raise BackendFailedError(f"DuckDB: {text}") from error


def _file(path: Path) -> str:
    return f"read_parquet({_text(_pattern(path))})"


def _rows(path: Path) -> str:
    return f"read_parquet({_text(_pattern(path))}, file_row_number=true)"


def _pattern(path: Path) -> str:
    """DuckDB takes the paths that it reads as globs."""
    return glob.escape(str(path))


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
