"""What people look at in the morning: history, regressions, benchmark and the report itself."""
