"""tritforge, the host side: from YAML to a verified board."""
