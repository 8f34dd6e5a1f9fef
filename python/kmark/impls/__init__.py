"""Adapters, one file per op."""
