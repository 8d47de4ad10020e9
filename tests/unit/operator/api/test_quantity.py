"""Kubernetes quantities: every suffix, exponents, and a clear error for the rest."""

from decimal import Decimal

import pytest

from dgl_operator.api import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20Gi", Decimal(20 * 2**30)),
        ("1.5Gi", Decimal(1610612736)),
        ("500m", Decimal("0.5")),
        ("128974848", Decimal(128974848)),
        ("129e6", Decimal(129_000_000)),
        ("129M", Decimal(129_000_000)),
        ("2k", Decimal(2000)),
        ("1E", Decimal(10**18)),
        ("1Ei", Decimal(2**60)),
        (".5", Decimal("0.5")),
        ("1.", Decimal(1)),
        (3, Decimal(3)),
        (0.5, Decimal("0.5")),
        ("100u", Decimal("0.0001")),
    ],
)
def test_a_quantity_has_its_value(text: object, value: Decimal) -> None:
    """As apimachinery's resource.Quantity reads it."""
    assert quantity.parse(text) == value


@pytest.mark.parametrize("text", ["", "lots", "1 Gi", "1GiB", "--1", "1e", "e3", "\uff12Gi", None])
def test_what_is_no_quantity_is_named(text: object) -> None:
    """What was expected and what was found."""
    with pytest.raises(quantity.QuantityError, match="expected a quantity such as 20Gi or 500m, got"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [("-2Gi", "at least 0"), ("1" * 41, "at most 40 digits"), ("1e" + "9" * 5000, "at most 40 digits")],
)
def test_a_quantity_that_nothing_can_have_is_named(text: str, said: str) -> None:
    """In a line that stays short, whatever was written."""
    with pytest.raises(quantity.QuantityError, match=said) as caught:
        quantity.parse(text)

    assert len(str(caught.value)) < 300
