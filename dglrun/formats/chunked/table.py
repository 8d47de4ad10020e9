"""A table of a chunked graph: which files hold its rows, and in which format."""

from dataclasses import dataclass

from dglrun.formats.chunked.input_file import File

CSV, NUMPY, PARQUET = "csv", "numpy", "parquet"
FORMATS = (CSV, NUMPY, PARQUET)
_FLOATS, _INTEGERS = ("float16", "float32", "float64", "bfloat16"), ("int8", "int16", "int32", "int64")
FEATURE_DTYPES = (*_FLOATS, "uint8", *_INTEGERS, "bool")
"""What DGL holds as a feature."""


@dataclass(frozen=True)
class FileSpec:
    """A table in files: its rows are those of the files one after another, in this order.

    Attributes:
        format: `csv`, `numpy` or `parquet`.
        paths: The files, by absolute paths or as places; none is legal where the table has no rows.
        delimiter: One character between the columns of a csv file (DGL's tools: always a blank); without
            meaning elsewhere.
        dtype: Name of the values of csv features (our extension); None: inferred. In the other formats the
            files tell, except that `bfloat16` says what the uint16 values in them are.
    """

    format: str
    paths: tuple[File, ...]
    delimiter: str = " "
    dtype: str | None = None
