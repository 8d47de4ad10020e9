"""What holds over all modules of dglrun."""

import re
from collections import defaultdict

from tests.support.dglrun_pods import ROOT


def test_no_two_classes_have_one_name() -> None:
    """One word means one thing (docs/howto/style.md); a name with an underscore is of its module alone."""
    where = defaultdict(list)
    for path in sorted((ROOT / "dglrun").rglob("*.py")):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            where[name].append(str(path.relative_to(ROOT)))

    assert where
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}
