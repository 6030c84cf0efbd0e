"""Which engines take part."""

from bench import _model

OURS = _model.OURS
PEERS = ("kvgit", "agex", "agentref", "agentstateprotocol", "langgraph")
FLOORS = ("pickle", "msgpack", "zstd")
EVERY = (OURS, *PEERS, *FLOORS)

OURS_ON_DISK = "ropewalk-disk"
FILES = "ropewalk-files"
TOLD_ON_DISK = "ropewalk-told"
PEERS_ON_DISK = ("kvgit-disk", "agex-disk", "agentref-disk", "agentstateprotocol-disk")
PICKLE_ON_DISK = "pickle-sqlite"
BARE_ON_DISK = "bare-sqlite"
EVERY_ON_DISK = (OURS_ON_DISK, FILES, *PEERS_ON_DISK, PICKLE_ON_DISK, BARE_ON_DISK)

STEPS_ON_DISK = "timeline-sqlite"
PEERS_STEPS = ("protocol-steps-sqlite", "protocol-steps-files")
EVERY_STEPS = (STEPS_ON_DISK, "timeline-relaxed", "timeline-files", *PEERS_STEPS)

HELD = "versioned"
PEERS_HELD = ("agex-state", "kvgit-state", "agentref-state")
EVERY_HELD = (HELD, *PEERS_HELD)

HELD_ON_DISK = "versioned-disk"
HELD_RELAXED = "versioned-relaxed"
PEERS_HELD_ON_DISK = ("agex-state-disk", "kvgit-state-disk", "agentref-state-disk")
TYPED_ON_DISK = "typed-disk"
EVERY_HELD_ON_DISK = (HELD_ON_DISK, HELD_RELAXED, TYPED_ON_DISK, *PEERS_HELD_ON_DISK)

ENGINES = ("engine-postgres", "engine-redis", "engine-s3")
EMBEDDED = "engine-sqlite"
SAVER = "langgraph-postgres"
SAVER_STEP = "langgraph-postgres-step"
FLOOR_OF = {"postgres": "floor-postgres", "redis": "floor-redis", "s3": "floor-s3"}
EVERY_SERVED = (*ENGINES, EMBEDDED, SAVER, SAVER_STEP, *FLOOR_OF.values())

TALK = "threads-memory"
TALK_RELAXED = "threads-relaxed"
TALK_ON_DISK = "threads-sqlite"
TALK_AWAITED = "threads-sqlite-async"
PEER_TALK = "pyagenity"
PEER_TALK_ON_DISK = "openai-session"
EVERY_TALK = (TALK, TALK_RELAXED, PEER_TALK)
EVERY_TALK_ON_DISK = (TALK_ON_DISK, TALK_AWAITED, PEER_TALK_ON_DISK)

NO_SAVER = "saver-none"
NULL_SAVER = "saver-null"
OUR_SAVER = "saver-ropewalk"
OUR_SAVER_DELTA = "saver-ropewalk-delta"
OUR_SAVER_SERVED = "saver-ropewalk-postgres"
SAVER_MEMORY = "saver-memory"
SAVER_SQLITE = "saver-sqlite"
SAVER_DELTA = "saver-sqlite-delta"
SAVER_POSTGRES = "saver-postgres"
SAVER_POOL = "saver-postgres-pool"
OUR_SAVERS = (OUR_SAVER, OUR_SAVER_SERVED)
DURABLE_SAVERS = (SAVER_SQLITE, SAVER_POSTGRES)
EVERY_SAVER = (*OUR_SAVERS, OUR_SAVER_DELTA, NO_SAVER, SAVER_MEMORY, *DURABLE_SAVERS, SAVER_DELTA)
SERVED_SAVERS = (OUR_SAVER_SERVED, SAVER_POSTGRES, SAVER_POOL)

PLAIN_GRAPH = "graph-plain"
PEER_GRAPH = "graph-agentref"
OUR_GRAPH = "graph-ropewalk"
EVERY_GRAPH = (OUR_GRAPH, PLAIN_GRAPH, PEER_GRAPH)

SHARED_MEMORY = "shared-memory"
PEERS_SHARED = ("shared-peer", "shared-peer-page")
OUR_SHARED = (
    "shared-lazy",
    "shared-eager",
    "shared-lease",
    "shared-access-count",
    "shared-broadcast",
)
SHARED_POSTGRES = "shared-langgraph-postgres"
OUR_SHARED_SERVED = (
    "shared-sqlite",
    "shared-sqlite-lease",
    "shared-postgres",
    "shared-postgres-lease",
    "shared-redis",
    "shared-redis-lease",
)
EVERY_SHARED_SERVED = (*OUR_SHARED_SERVED, SHARED_POSTGRES)

TOLD_HERE = "told-here"
TOLD_SERVED = ("told-postgres", "told-redis", "told-nats", "told-sqlite")
EVERY_TOLD = (TOLD_HERE, *TOLD_SERVED)
