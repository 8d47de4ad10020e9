"""How good a partition is: edge cut, balances and halo, measured from the folder itself."""
