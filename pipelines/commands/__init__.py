"""One file a task: ``run(context, **flags)`` does it and returns its JSON keys; ``show`` prints them for a person."""
