"""The circuits on this machine: Verilated library, synthesis figures, simulation of a token, mutation campaign."""
