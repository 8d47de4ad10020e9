"""DGL's chunked graph format: its metadata.json, and readers and writers that move bounded blocks.

`metadata` knows the file that describes a graph, `check` compares it with the files it names, `read`
and `write` move rows. Nothing here needs torch or dgl.
"""
