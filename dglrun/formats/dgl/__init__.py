"""DGL's binary files read and written without DGL or torch.

A partition folder is a few big arrays behind small headers. Knowing where each array begins,
a writer can put any block of rows in its place and a reader can take any block from it, so
neither ever holds a whole part. The layouts are those of `dgl.save_graphs` (version 2) and
`dgl.data.utils.save_tensors`, which are the same from dgl 1.1.3 to 2.1.0.
"""
