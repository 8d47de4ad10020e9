"""Step 2 of the pipeline: a chunked graph and its assignment become DGL's partition folder."""
