"""Measurements of the methods; their results lie in benchmarks/results and are printed in the README."""
