"""Puts the partition in place that lies below /ready: what partitioning would take if it cost nothing."""

import argparse
import shutil
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--workspace")
parser.add_argument("--rel_data_path")
args, _ = parser.parse_known_args()

config = next(Path("/ready").glob("*/w-*/*.json"))
shutil.copytree(config.parent, Path(args.workspace, args.rel_data_path), dirs_exist_ok=True)
