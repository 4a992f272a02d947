"""A strict stand-in for Vivado, for tests only: it runs the real Tcl and builds nothing that could work.

Standard library only, any Python from 3.9 on, so that it can also be put on a "remote build host". What it assumes of
the real tool without being able to know it is marked ``ASSUMPTION Ann`` where it is used, and listed in
``docs/vivado.md`` with the way to check it on the first run with Vivado.
"""
