"""Stages with content-hashed inputs, the store of what they made, and the proof of how it was made."""
