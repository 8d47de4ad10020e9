"""Kubernetes quantities as numbers (apimachinery's resource.Quantity: 1500m, 2Gi, 3e9, 20G)."""

import re
from decimal import Decimal
from typing import Any

from dgl_operator.api.v1alpha1 import shown

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([KMGTPE]i|[numkMGTPE])?)", re.ASCII)

MAX_DIGITS = 40
"""Of a number and of what its exponent adds; the API server itself caps quantities at 2^63."""


class QuantityError(ValueError):
    """Not a quantity; names what was found."""


def parse(value: Any) -> Decimal:
    """Return the quantity's value in its base unit (bytes, cores, devices).

    Raises:
        QuantityError: the text is no quantity, or a negative one.
    """
    found = _QUANTITY.fullmatch(str(value).strip())
    if found is None:
        raise QuantityError(f"expected a quantity such as 20Gi or 500m, got {shown(value)}")
    number, exponent, suffix = found.groups()
    is_long = len(number) > MAX_DIGITS or len(exponent or "") > MAX_DIGITS  # int() refuses 4,300 digits
    if is_long or (exponent and abs(int(exponent)) > MAX_DIGITS):
        raise QuantityError(f"expected a quantity of at most {MAX_DIGITS} digits, got {shown(value)}")
    scale = Decimal(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""]
    amount = Decimal(number) * scale
    if amount < 0:
        raise QuantityError(f"expected a quantity of at least 0, got {shown(value)}")
    return amount
