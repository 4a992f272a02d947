"""What runs on the board: the agent that a host talks to over ssh, and the jobs of a release.

Python 3.8 syntax and the standard library, besides ``tokenizers`` for text. Nothing here imports ``pipelines``. The
agent's modules import as little as they can: on a Cortex-A9 an import costs more than most requests.
"""
