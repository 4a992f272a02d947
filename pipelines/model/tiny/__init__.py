"""``tiny``: how the shipped model comes to be. Only ``network`` and ``train`` need torch."""
