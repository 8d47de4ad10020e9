"""Kept partitions: a partition in a store, under the fingerprint of what it was made of.

    <URI>/<fingerprint>/manifest.json                  written last; names one writer's folder
    <URI>/<fingerprint>/<folder of a writer>/<files>   as partition_graph writes them

Each writer has a folder of its own, whose name is random, and a manifest is written whole or not at all. So
whoever reads a manifest reads the files of one writer, whatever others do meanwhile.
"""
