"""The YAML of `dglrun chunk --config`: which tables a graph is made of, and what becomes of their columns."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dglrun.errors import DataError

Dtype = Literal["float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"]
OneChar = Annotated[str, Field(min_length=1, max_length=1)]
SPLITS = ("train", "val", "test")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Csv(_Model):
    """How csv files are written.

    Attributes:
        delimiter: Between two fields.
        header: Whether the first row of each file has the names.
        columns: The names where there is no header, or other names than its.
        quote: Around fields that hold the delimiter; None: quotes mean nothing.
        escape: Character before one that is taken literally (Spark: a backslash); None: a quote is doubled.
        encoding: Of the text.
        empty: Fields that stand for no value, beside nulls of Parquet.
    """

    delimiter: OneChar = ","
    header: bool = True
    columns: tuple[str, ...] = Field((), strict=False)
    quote: OneChar | None = '"'
    escape: OneChar | None = None
    encoding: str = "utf-8"
    empty: tuple[str, ...] = Field(("",), strict=False)

    @model_validator(mode="after")
    def _names_are_known(self) -> "Csv":
        if not self.header and not self.columns:
            raise ValueError("header: false needs the names in `columns`")
        return self


class Feature(_Model):
    """A feature: exactly one of `column`, `columns` and `category`.

    Attributes:
        column: One column: a value for each row, or the vectors of a list column of Parquet.
        columns: Numeric columns side by side, shape (rows, columns).
        category: One column of texts, which become integers in the order of the texts.
        dtype: Of the values; None: float32, for a category int64.
        missing: Value where there is none, and for nodes without a row; None: that is an error.
    """

    column: str | None = None
    columns: tuple[str, ...] = Field((), strict=False)
    category: str | None = None
    dtype: Dtype | None = None
    missing: int | float | bool | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> "Feature":
        if sum(map(bool, (self.column, self.columns, self.category))) != 1:
            raise ValueError("expected exactly one of column, columns and category")
        if self.missing is not None and not _holds(self.kind, self.missing):
            raise ValueError(f"missing: {self.kind} does not hold {self.missing!r}")
        if self.category and self.dtype not in (None, "int8", "int16", "int32", "int64", "uint8"):
            raise ValueError(f"a category is an integer, got dtype {self.dtype}")
        return self

    @property
    def kind(self) -> str:
        """The name of the dtype."""
        return self.dtype or ("int64" if self.category else "float32")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it is made of."""
        return self.columns or tuple(filter(None, (self.column, self.category)))


def _holds(kind: str, value: float) -> bool:
    if kind.startswith("float"):
        return True
    if kind == "bool":
        return value in (0, 1)
    limits = np.iinfo(kind)
    return value == value // 1 and limits.min <= value <= limits.max


class Masks(_Model):
    """train_mask, val_mask and test_mask: by ratio, or by the words of a column.

    Attributes:
        train: Ratio of the rows, or with `column` the word of this set.
        val: The same.
        test: The same.
        column: The column that says which set a row belongs to; a row without a value belongs to none.
    """

    train: float | str | None = None
    val: float | str | None = None
    test: float | str | None = None
    column: str | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> "Masks":
        given = [getattr(self, split) for split in SPLITS]
        if self.column:
            if any(isinstance(each, float) for each in given):
                raise ValueError("with column, train, val and test are words of it, not ratios")
            return self
        if any(isinstance(each, str) for each in given):
            raise ValueError("train, val and test are ratios unless a column is named")
        ratios = [each or 0.0 for each in given]
        if not any(ratios) or min(ratios) < 0 or sum(ratios) > 1 + 1e-9:
            raise ValueError(f"expected ratios from 0 on with a sum above 0 and up to 1, got {ratios}")
        return self

    @property
    def ratios(self) -> tuple[float, ...]:
        """Of the rows in train, val, test."""
        return tuple(float(getattr(self, split) or 0.0) for split in SPLITS)

    @property
    def words(self) -> dict[str, int]:
        """Word of the column -> number of its set."""
        return {str(getattr(self, split) or split): at for at, split in enumerate(SPLITS)}


class TableConfig(_Model):
    """Files of one table, and what becomes of its columns.

    Attributes:
        files: Files, folders and globs; a folder stands for its part files.
        format: csv or parquet; None: by the files' names.
        csv: Of csv files.
        features: By name.
        masks: None: no masks.
    """

    files: tuple[str, ...] = Field((), strict=False)
    format: Literal["csv", "parquet"] | None = None
    csv: Csv = Csv()
    features: dict[str, Feature] = {}
    masks: Masks | None = None

    @field_validator("files", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _names_are_free(self) -> "TableConfig":
        if self.masks and (taken := [f"{each}_mask" for each in SPLITS if f"{each}_mask" in self.features]):
            raise ValueError(f"feature {taken[0]} and masks: expected one of the two")
        return self


class NodeTable(TableConfig):
    """A node type; without files its nodes are those that edges name.

    Attributes:
        id: Column of the IDs.
        ids: string, or integer (64 bits, so that 7 and 007 are one node).
        unlisted: What a node is that occurs in edges only: an error, or added.
    """

    id: str | None = None
    ids: Literal["string", "integer"] = "string"
    unlisted: Literal["error", "add"] = "error"

    @model_validator(mode="after")
    def _has_ids(self) -> "NodeTable":
        if bool(self.files) != bool(self.id):
            raise ValueError("files and id must be used together")
        if not self.files and (self.features or self.masks):
            raise ValueError("features and masks need files")
        return self


class EdgeTable(TableConfig):
    """An edge type.

    Attributes:
        src: Column of the source IDs.
        dst: Column of the destination IDs.
        reverse: Whether a relation `rev_<relation>` is added, with the same features and without the masks.
    """

    src: str
    dst: str
    reverse: bool = False

    @model_validator(mode="after")
    def _has_files(self) -> "EdgeTable":
        if not self.files:
            raise ValueError("expected files")
        return self


class TablesConfig(_Model):
    """The whole file.

    Attributes:
        name: Graph name.
        nodes: Node types in the order of their type IDs.
        edges: Edge types `source:relation:destination`, in the same way; reverse relations come last.
        seed: Of the masks by ratio.
        memory_mib: What DuckDB may use; beyond it it works on disk.
    """

    name: str
    nodes: dict[str, NodeTable]
    edges: dict[str, EdgeTable]
    seed: int = Field(0, ge=0)
    memory_mib: int = Field(2048, ge=256)

    @field_validator("nodes", mode="before")
    @classmethod
    def _nothing_is_said_of_a_type(cls, value: Any) -> Any:
        """`author:` alone is a type whose nodes the edges name."""
        return {name: each or {} for name, each in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _types_are_known(self) -> "TablesConfig":
        if not self.edges:
            raise ValueError("edges: expected at least one edge type")
        for etype in self.edges:
            ends = etype.split(":")
            if len(ends) != 3:
                raise ValueError(f"edges: expected source:relation:destination, got {etype!r}")
            if unknown := [end for end in ends[::2] if end not in self.nodes]:
                raise ValueError(f"edges: {etype}: {unknown[0]!r} is none of the nodes {list(self.nodes)}")
        for ntype, nodes in self.nodes.items():
            if not nodes.files and not any(ntype in etype.split(":")[::2] for etype in self.edges):
                raise ValueError(f"nodes: {ntype}: has neither files nor edges")
        if twice := [reverse_of(name) for name in self.reversed if reverse_of(name) in self.edges]:
            raise ValueError(f"edges: {twice[0]} is there already: expected no `reverse`, or another name")
        return self

    @property
    def reversed(self) -> tuple[str, ...]:
        """The edge types that get a reverse relation."""
        return tuple(etype for etype, edges in self.edges.items() if edges.reverse)


def reverse_of(etype: str) -> str:
    """`dst:rev_rel:src` of `src:rel:dst`."""
    src, relation, dst = etype.split(":")
    return f"{dst}:rev_{relation}:{src}"


class _Loader(yaml.SafeLoader):
    """YAML without repeated keys, of which the first would be dropped without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is given twice."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if isinstance(key, str) and keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} is given twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def load(path: Path) -> TablesConfig:
    """Read and check the file.

    Raises:
        DataError: it is missing, is no YAML, or says what cannot be; names file and key.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe loader
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except yaml.YAMLError as error:
        raise DataError(f"{path}: is no YAML: {' '.join(str(error).split())}") from None
    try:
        return TablesConfig.model_validate(raw)
    except ValidationError as error:
        raise DataError(f"{path}: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False)[0]
    where = "/".join(map(str, found["loc"]))
    words = found["msg"].removeprefix("Value error, ")
    got = "" if found["type"] in ("missing", "value_error") else f", got {str(found['input'])[:200]!r}"
    return f"{where}: {words}{got}" if where else f"{words}{got}"
