"""What the example says at its end, and how good it has to be."""

import re

ABOVE_MAJORITY = 0.20
"""By which a model that has learned beats the most frequent class."""
FINAL = re.compile(r"Test accuracy: (\d\.\d+) \(majority class (\d\.\d+)\)")
