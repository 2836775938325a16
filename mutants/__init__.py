"""Small faults put into a copy of the package, one at a time: the tests named beside each must notice it."""
