"""The model: checkpoint in, calibrated and packed integers out; and the small model that ships."""
