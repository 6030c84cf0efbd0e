"""The tables and functions of a store in Postgres, as the SQL that makes them.

facts       one row: the layout of these tables, the store's header, the epoch
objects     one row for each object. `key` is the first half of its id, by which it is found,
            and `rest` the other half; `base` is the key of its base, whose id its frame lacks
condemned   what is marked for deletion, and by which collection
spaces      a number for each space, its last operation, and its counter of fencing tokens
refs        name and target, and the operation that last moved it
operations  one row for each commit; `write` is a hash of space and write id
leases      what was granted and not given back
watches     which spaces somebody listens to, and until when; may be lost
accesses    when the content of references was last read; may be lost
indexed, words, scratch: see `_postgres_beside_sql`; may be lost

The functions are what changes a space: each is one statement for who calls it, so one
round trip and one transaction. Their names carry a number that changes with what they take
and what they do.
"""

from __future__ import annotations

import re

from ropewalk.errors import InvalidInput
from ropewalk.store import _postgres_beside_sql as beside
from ropewalk.store._postgres_group_sql import GROUP
from ropewalk.store._records import Header, encode_header

LAYOUT = 2
"""The version of the tables."""

AFTER_NAMES = "\x7f"
"""Sorts behind every character of a name."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,47}", re.ASCII)

_TABLES = """
CREATE TABLE {s}.facts (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    layout integer NOT NULL, epoch integer NOT NULL, header bytea NOT NULL
);
CREATE TABLE {s}.objects (
    depth smallint NOT NULL, key uuid PRIMARY KEY, base uuid,
    rest bytea NOT NULL, frame bytea NOT NULL
);
-- Frames are compressed already.
ALTER TABLE {s}.objects ALTER COLUMN frame SET STORAGE EXTERNAL;
CREATE TABLE {s}.condemned (collection bigint NOT NULL, key uuid PRIMARY KEY);
-- Rows that change with every commit have room beside them for the next version.
CREATE TABLE {s}.spaces (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sequence bigint NOT NULL DEFAULT 0, tokens bigint NOT NULL DEFAULT 0,
    name text COLLATE "C" NOT NULL UNIQUE
) WITH (fillfactor = 50);
CREATE TABLE {s}.refs (
    space integer NOT NULL, sequence bigint NOT NULL,
    name text COLLATE "C" NOT NULL, target bytea NOT NULL,
    PRIMARY KEY (space, name)
) WITH (fillfactor = 50);
CREATE TABLE {s}.operations (
    space integer NOT NULL, epoch integer NOT NULL, sequence bigint NOT NULL,
    write bigint NOT NULL, digest bigint NOT NULL, record bytea NOT NULL,
    PRIMARY KEY (space, sequence)
);
CREATE UNIQUE INDEX operations_write ON {s}.operations (write);
CREATE TABLE {s}.leases (
    space integer NOT NULL, token bigint NOT NULL, beat bigint NOT NULL,
    duration double precision NOT NULL,
    name text COLLATE "C" NOT NULL, holder bytea NOT NULL,
    PRIMARY KEY (space, name)
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE {s}.watches (
    until timestamptz NOT NULL, space text COLLATE "C" PRIMARY KEY
);
CREATE UNLOGGED TABLE {s}.accesses (at timestamptz NOT NULL, hash bytea PRIMARY KEY);
"""

# A session keeps the plans of a function. Made while tables are small, a plan may read them
# whole, and would go on to do so when they have grown. So only plans over indexes are allowed.
# EXISTS beside OR becomes a subplan that may hash a whole table, which no setting forbids: a
# LEFT JOIN takes its place.
_PLANNING = """
    SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan SET jit = off
"""

# What every change begins with: the level of durability, and how long to wait for others.
# With another isolation, a commit that waited would decide on what was before.
_BEGIN = """
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'transactions are % here', current_setting('transaction_isolation')
            USING ERRCODE = 'HF001';
    END IF;
    -- Assignments, because a PERFORM is a statement of its own.
    IF NOT p_durable THEN
        v_set := set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        v_set := set_config('synchronous_commit', 'on', true);
    END IF;
    v_set := set_config('lock_timeout', p_patience, true);
"""

_COMMIT = """
CREATE OR REPLACE FUNCTION {s}.commit_2(
    p_durable boolean, p_patience text,
    p_space text, p_write bigint, p_digest bigint, p_record bytea, p_epoch integer,
    p_keys uuid[], p_rests bytea, p_depths bytea, p_bases uuid[], p_inside bytea,
    p_frames bytea[], p_needs uuid[], p_targets uuid[],
    p_names text[], p_expected bytea[], p_moved bytea[],
    p_leases text[], p_tokens bigint[],
    OUT status integer, OUT last bigint, OUT current_epoch integer, OUT watched boolean,
    OUT place integer, OUT actual bytea, OUT keys uuid[], OUT found_digest bigint,
    OUT found_record bytea
) LANGUAGE plpgsql {planning} AS $commit$
#variable_conflict use_column
DECLARE
    v_set text;
    v_space integer;
    v_there bigint := 0;
    v_marked bigint := 0;
    v_stored bigint;
    v_found bigint;
    v_found_epoch integer;
    v_revived uuid[];
BEGIN
    {begin}
    -- The next number is taken first, which locks the space. Whoever is refused gives it back.
    -- It also keeps collections from condemning meanwhile, which lock the table against it.
    UPDATE {s}.spaces SET sequence = sequence + 1 WHERE name = p_space
        RETURNING number, sequence INTO v_space, last;
    IF NOT FOUND THEN
        INSERT INTO {s}.spaces (name) VALUES (p_space) ON CONFLICT (name) DO NOTHING;
        UPDATE {s}.spaces SET sequence = sequence + 1 WHERE name = p_space
            RETURNING number, sequence INTO v_space, last;
    END IF;
    SELECT f.epoch, EXISTS (SELECT FROM {s}.watches w WHERE w.space = p_space AND w.until > now()),
        o.sequence, o.epoch, o.digest, o.record,
        CASE WHEN o.space IS NULL THEN 0 WHEN o.space = v_space THEN 1 ELSE 6 END
        INTO current_epoch, watched, v_found, v_found_epoch, found_digest, found_record, status
        FROM {s}.facts f LEFT JOIN {s}.operations o ON o.write = p_write WHERE f.one;
    IF status = 0 AND cardinality(p_leases) > 0 THEN
        SELECT 2, f.at INTO status, place
            FROM unnest(p_leases, p_tokens) WITH ORDINALITY f(name, token, at)
            LEFT JOIN {s}.leases l ON l.space = v_space AND l.name = f.name
            -- Nobody may hold it if the token is 0.
            WHERE coalesce(l.token, 0) <> f.token ORDER BY f.at LIMIT 1;
        status := coalesce(status, 0);
    END IF;
    IF status = 0 AND cardinality(p_names) > 0 THEN
        SELECT 3, m.at, r.target INTO status, place, actual
            FROM unnest(p_names, p_expected) WITH ORDINALITY m(name, expected, at)
            LEFT JOIN {s}.refs r ON r.space = v_space AND r.name = m.name
            WHERE r.target IS DISTINCT FROM m.expected ORDER BY m.at LIMIT 1;
        status := coalesce(status, 0);
    END IF;
    IF status = 0 AND p_epoch IS DISTINCT FROM current_epoch THEN
        p_targets := p_targets || p_needs;
    END IF;
    IF status = 0 AND cardinality(p_targets) > 0 THEN
        SELECT array_agg(n.key) INTO keys FROM unnest(p_targets) n(key)
            LEFT JOIN {s}.objects o ON o.key = n.key LEFT JOIN {s}.condemned c ON c.key = n.key
            WHERE o.key IS NULL OR c.key IS NOT NULL;
        IF keys IS NOT NULL THEN
            status := 4;
        END IF;
    END IF;
    IF status = 0 AND cardinality(p_keys) > 0 THEN
        -- How many are there, how many of these are condemned, and which must be stored whole:
        -- those that take the place of a condemned one, or whose base is not as they expect.
        SELECT count(o.key), count(c.key), array_agg(f.key) FILTER (
                WHERE f.base IS NOT NULL AND (
                    c.key IS NOT NULL OR o.key IS NULL AND CASE
                        WHEN b.key IS NULL OR d.key IS NOT NULL
                        THEN get_byte(p_inside, f.at::integer - 1) = 0
                        ELSE b.depth >= get_byte(p_depths, f.at::integer - 1) END
                )
            )
            INTO v_there, v_marked, keys
            FROM unnest(p_keys, p_bases) WITH ORDINALITY f(key, base, at)
            LEFT JOIN {s}.objects o ON o.key = f.key LEFT JOIN {s}.condemned c ON c.key = f.key
            LEFT JOIN {s}.objects b ON b.key = f.base LEFT JOIN {s}.condemned d ON d.key = f.base;
        IF keys IS NOT NULL THEN
            status := 5;
        END IF;
    END IF;
    IF status <> 0 THEN
        UPDATE {s}.spaces SET sequence = sequence - 1 WHERE number = v_space;
        IF status = 1 THEN
            last := v_found;
            current_epoch := v_found_epoch;
        END IF;
        RETURN;
    END IF;
    IF v_marked > 0 THEN
        -- The mark goes first, as where objects are deleted.
        WITH gone AS (DELETE FROM {s}.condemned WHERE key = ANY (p_keys) RETURNING key)
            SELECT array_agg(key) INTO v_revived FROM gone;
        IF v_marked IS DISTINCT FROM cardinality(v_revived) THEN
            RAISE EXCEPTION 'ropewalk: a condemned object was deleted meanwhile'
                USING ERRCODE = 'serialization_failure';
        END IF;
        UPDATE {s}.objects o SET depth = 0, base = NULL, frame = f.frame
            FROM unnest(p_keys, p_frames) f(key, frame)
            WHERE o.key = f.key AND o.key = ANY (v_revived);
    END IF;
    IF cardinality(p_keys) > v_there THEN
        -- In the order of their keys, so that two commits never wait for each other.
        INSERT INTO {s}.objects (depth, key, base, rest, frame)
            SELECT get_byte(p_depths, f.at::integer - 1), f.key, f.base,
                substring(p_rests FROM 16 * f.at::integer - 15 FOR 16), f.frame
            FROM unnest(p_keys, p_bases, p_frames) WITH ORDINALITY f(key, base, frame, at)
            LEFT JOIN {s}.objects o ON v_there > 0 AND o.key = f.key
            WHERE o.key IS NULL
            ORDER BY f.at
            ON CONFLICT (key) DO NOTHING;
        GET DIAGNOSTICS v_stored = ROW_COUNT;
        IF v_stored + v_there <> cardinality(p_keys) THEN
            -- Somebody else has just stored one, perhaps otherwise than what is stored
            -- against it here expects.
            RAISE EXCEPTION 'ropewalk: an object was stored by another commit meanwhile'
                USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF array_position(p_moved, NULL) IS NOT NULL THEN
        DELETE FROM {s}.refs r USING unnest(p_names, p_moved) m(name, moved)
            WHERE m.moved IS NULL AND r.space = v_space AND r.name = m.name;
    END IF;
    INSERT INTO {s}.refs AS r (space, sequence, name, target)
        SELECT v_space, last, m.name, m.moved FROM unnest(p_names, p_moved) m(name, moved)
        WHERE m.moved IS NOT NULL
        ON CONFLICT (space, name)
        DO UPDATE SET target = EXCLUDED.target, sequence = EXCLUDED.sequence;
    INSERT INTO {s}.operations (space, epoch, sequence, write, digest, record)
        VALUES (v_space, current_epoch, last, p_write, p_digest, p_record);
END $commit$;
"""

# The frames of objects, and of everything that they are stored against.
_FRAMES = """
CREATE OR REPLACE FUNCTION {s}.frames_1(p_keys uuid[])
    RETURNS TABLE (id bytea, base uuid, frame bytea)
    LANGUAGE sql STABLE {planning} AS $frames$
    WITH RECURSIVE chain(key, base) AS (
        SELECT o.key, o.base FROM {s}.objects o WHERE o.key = ANY (p_keys)
        UNION
        SELECT o.key, o.base FROM chain c JOIN {s}.objects o ON o.key = c.base
    )
    SELECT uuid_send(o.key) || o.rest, o.base, o.frame
    FROM chain c JOIN {s}.objects o ON o.key = c.key
$frames$;
"""

_LEASES = """
CREATE OR REPLACE FUNCTION {s}.grant_1(
    p_durable boolean, p_patience text, p_space text, p_name text,
    p_holder_before bytea, p_token_before bigint, p_beat_before bigint,
    p_duration_before double precision, p_holder bytea, p_duration double precision
) RETURNS bigint LANGUAGE plpgsql {planning} AS $grant$
DECLARE
    v_set text;
    v_space integer;
    v_token bigint;
BEGIN
    {begin}
    INSERT INTO {s}.spaces (name) VALUES (p_space) ON CONFLICT (name) DO NOTHING;
    SELECT number, tokens + 1 INTO v_space, v_token FROM {s}.spaces WHERE name = p_space FOR UPDATE;
    IF p_token_before IS NULL THEN
        PERFORM FROM {s}.leases WHERE space = v_space AND name = p_name;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    ELSE
        PERFORM FROM {s}.leases WHERE space = v_space AND name = p_name
            AND holder = p_holder_before AND token = p_token_before
            AND beat = p_beat_before AND duration = p_duration_before;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    UPDATE {s}.spaces SET tokens = v_token WHERE number = v_space;
    INSERT INTO {s}.leases (space, token, beat, duration, name, holder)
        VALUES (v_space, v_token, 0, p_duration, p_name, p_holder)
        ON CONFLICT (space, name) DO UPDATE SET
            token = EXCLUDED.token, beat = EXCLUDED.beat,
            duration = EXCLUDED.duration, holder = EXCLUDED.holder;
    RETURN v_token;
END $grant$;
CREATE OR REPLACE FUNCTION {s}.swap_1(
    p_durable boolean, p_patience text, p_space text, p_name text,
    p_holder_before bytea, p_token_before bigint, p_beat_before bigint,
    p_duration_before double precision,
    p_holder bytea, p_token bigint, p_beat bigint, p_duration double precision
) RETURNS boolean LANGUAGE plpgsql {planning} AS $swap$
DECLARE
    v_set text;
    v_space integer;
BEGIN
    {begin}
    SELECT number INTO v_space FROM {s}.spaces WHERE name = p_space FOR UPDATE;
    IF p_token IS NULL THEN
        DELETE FROM {s}.leases WHERE space = v_space AND name = p_name
            AND holder = p_holder_before AND token = p_token_before
            AND beat = p_beat_before AND duration = p_duration_before;
    ELSE
        UPDATE {s}.leases SET
            holder = p_holder, token = p_token, beat = p_beat, duration = p_duration
            WHERE space = v_space AND name = p_name
            AND holder = p_holder_before AND token = p_token_before
            AND beat = p_beat_before AND duration = p_duration_before;
    END IF;
    RETURN FOUND;
END $swap$;
"""

_COLLECTION = """
CREATE OR REPLACE FUNCTION {s}.condemn_1(
    p_durable boolean, p_patience text, p_keys uuid[], p_collection bigint
) RETURNS void LANGUAGE plpgsql {planning} AS $condemn$
DECLARE
    v_set text;
BEGIN
    {begin}
    -- No commit is under way: what each has seen alive, it has stored against, or it sees this.
    LOCK TABLE {s}.spaces IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO {s}.condemned AS c (collection, key)
        SELECT p_collection, o.key FROM unnest(p_keys) n(key) JOIN {s}.objects o ON o.key = n.key
        ON CONFLICT (key) DO UPDATE SET collection = EXCLUDED.collection;
END $condemn$;
CREATE OR REPLACE FUNCTION {s}.revive_1(p_durable boolean, p_patience text, p_keys uuid[])
RETURNS void LANGUAGE plpgsql {planning} AS $revive$
DECLARE
    v_set text;
BEGIN
    {begin}
    DELETE FROM {s}.condemned WHERE key = ANY (p_keys);
END $revive$;
CREATE OR REPLACE FUNCTION {s}.raise_1(p_durable boolean, p_patience text)
RETURNS integer LANGUAGE plpgsql {planning} AS $raise$
DECLARE
    v_set text;
    v_epoch integer;
BEGIN
    {begin}
    LOCK TABLE {s}.spaces IN SHARE ROW EXCLUSIVE MODE;
    UPDATE {s}.facts SET epoch = epoch + 1 WHERE one RETURNING epoch INTO v_epoch;
    RETURN v_epoch;
END $raise$;
CREATE OR REPLACE FUNCTION {s}.delete_1(
    p_durable boolean, p_patience text, p_keys uuid[], p_collection bigint
) RETURNS uuid[] LANGUAGE plpgsql {planning} AS $delete$
DECLARE
    v_set text;
    v_keys uuid[];
BEGIN
    {begin}
    -- The mark goes first: a commit that revives an object holds it, and takes it away.
    WITH gone AS (
        DELETE FROM {s}.condemned WHERE key = ANY (p_keys) AND collection = p_collection
        RETURNING key
    ) SELECT array_agg(key) INTO v_keys FROM gone;
    DELETE FROM {s}.objects WHERE key = ANY (v_keys);
    RETURN coalesce(v_keys, ARRAY[]::uuid[]);
END $delete$;
"""


def tables(schema: str) -> str:
    """What makes the tables of a store in a schema that is there. Its name is quoted already."""
    return _TABLES.format(s=schema) + beside.TABLES.format(s=schema)


def functions(schema: str) -> str:
    """What makes the functions of a store, or puts them in the place of what they were."""
    parts = (_COMMIT, GROUP, _FRAMES, _LEASES, _COLLECTION, beside.FUNCTIONS)
    words = {"bits": beside.BLOCK_BITS, "batch": beside.BATCH, "many": beside.MANY}
    return "".join(
        part.format(s=schema, planning=_PLANNING, begin=_BEGIN, **words) for part in parts
    )


def function_names() -> frozenset[str]:
    """The names of all functions of a store."""
    return frozenset(re.findall(r"CREATE OR REPLACE FUNCTION s\.(\w+)\(", functions("s")))


def check_schema(schema: str) -> str:
    """The name of a schema, checked; raises `InvalidInput`."""
    if not isinstance(schema, str) or not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidInput(
            f"schema is the name of a schema in Postgres: at most 48 letters, digits, _ and -, not "
            f"beginning with a digit or pg_; not {schema!r:.80}"
        )
    return schema


def quoted(schema: str) -> str:
    """A checked name, as it stands in a statement."""
    return f'"{schema}"'


def script(schema: str) -> str:
    """All that makes a store, for somebody who does that by hand, once."""
    name = quoted(check_schema(schema))
    # The id of a store is its own, so the server makes it up.
    known = encode_header(Header(bytes(16)))
    assert known.endswith(bytes(16))
    header = f"'\\x{known[:-16].hex()}'::bytea || uuid_send(gen_random_uuid())"
    return "\n".join(
        [
            "-- A Ropewalk store. Run it once, as who will use the store; or grant USAGE on the",
            "-- schema, SELECT, INSERT, UPDATE and DELETE on its tables, and EXECUTE on its",
            "-- functions to who will.",
            "BEGIN;",
            f"CREATE SCHEMA IF NOT EXISTS {name};",
            tables(name).strip(),
            functions(name).strip(),
            f"INSERT INTO {name}.facts (layout, epoch, header) VALUES ({LAYOUT}, 1, {header});",
            "COMMIT;",
            "",
        ]
    )
