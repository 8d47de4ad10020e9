"""The file formats, one place for each: chunked graphs, assignments, DGL's parts, ParMETIS's text."""
