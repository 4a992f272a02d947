"""The YAML under ``config/`` as checked models: what may be said, and where a mistake stands."""
