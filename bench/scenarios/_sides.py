"""Which engines take part."""

OURS = "holdfast"
PEERS = ("kvgit", "agex", "agentref", "agentstateprotocol", "langgraph")
FLOORS = ("pickle", "msgpack", "zstd")
EVERY = (OURS, *PEERS, *FLOORS)
