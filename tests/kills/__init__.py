"""The operator killed again and again right after what it has written, over jobs under way."""
