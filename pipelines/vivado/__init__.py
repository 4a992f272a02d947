"""Vivado in batch mode: one design from YAML, built, measured, gated, compared."""
