"""The concrete stages: each says what a builder depends on, and wraps it."""
