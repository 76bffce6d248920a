"""Chance, laws, trees, layouts and traces: the words that everything else is said in."""
