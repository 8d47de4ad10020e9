"""The tables that users have, csv and Parquet under IDs of their own, as a chunked graph.

`config` is the file that describes them, `sources` finds and reads the files in blocks, `values` makes
arrays of columns, `rows_pass` takes one table through both, `ids` joins the IDs (by DuckDB, on disk), and
`build` does it all. Nothing here needs torch or dgl.
"""
