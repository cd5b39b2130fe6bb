"""cordisd: a JSON-RPC daemon that runs coding-agent rollouts."""

__version__ = "0.1.0"
