"""The layout that keeps Python and the layers working."""

from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_operator_is_a_source_root_and_no_package() -> None:
    """With an __init__.py it would hide the standard library's `operator` module."""
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_the_standard_operator_module_is_found_from_the_checkout() -> None:
    """The folder's name is the module's."""
    import operator  # noqa: PLC0415 - the import is the test

    assert operator.eq(1, 1)
