"""Boards: the emulated one, and what a release goes through to reach, run on and be proven on any of them."""
