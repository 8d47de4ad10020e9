"""Which files of a partition go to which worker."""

from pathlib import Path

import pytest

from dglrun.errors import DataError
from dglrun.transfer.partition_files import PartitionFiles
from tests.support.dglrun_pods import write_partition


def test_a_part_has_its_own_files_and_the_json_last(tmp_path: Path) -> None:
    """Part i goes to worker i, with the partition book; nothing of other parts."""
    write_partition(tmp_path, 3, "g")
    (tmp_path / "part1" / "orig_nids.dgl").touch()

    partition = PartitionFiles.find(tmp_path / "g.json", 3)

    own = [f"part1/{name}" for name in ("edge_feat.dgl", "graph.dgl", "node_feat.dgl", "orig_nids.dgl")]
    assert [item.name for item in partition.files(1)] == [*own, "g.json"]
    assert partition.all_files()[-1].name == "g.json"
    assert len(partition.all_files()) == 11


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside"])
def test_a_part_outside_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    """It would not be there on the worker."""
    write_partition(tmp_path, 1, "g")
    config = tmp_path / "g.json"
    config.write_text(config.read_text().replace("part0/graph.dgl", path))

    with pytest.raises(DataError, match="expected a path within"):
        PartitionFiles.find(config, 1)
