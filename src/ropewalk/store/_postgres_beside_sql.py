"""What stands beside history in Postgres: tables that a crash of the server empties together.

indexed  each scope that has an index of words: its number, which is drawn by lot, its state
words    the words of each position. A lexeme is a scope's number, a block's number and a word,
         so that a search reads only what belongs to its scope and block, the newest one first
scratch  small values, and until when they live by the server's clock
"""

from __future__ import annotations

BLOCK_BITS = 12
"""Positions are searched in blocks, so that what is in many of them is found in the first."""

BATCH = 500
"""So many positions at once are put in order at once, and not by the searches that follow."""

MANY = "!"
"""The lexeme of a position with more words than a row can hold: it is found by every word."""

TABLES = """
CREATE UNLOGGED TABLE IF NOT EXISTS {s}.indexed (
    number bigint NOT NULL UNIQUE, name text COLLATE "C" PRIMARY KEY, state bytea NOT NULL
);
CREATE UNLOGGED TABLE IF NOT EXISTS {s}.words (
    scope bigint NOT NULL, position bigint NOT NULL, words tsvector NOT NULL,
    PRIMARY KEY (scope, position)
);
-- What is still to be put in order is short, because every search looks through it.
CREATE INDEX IF NOT EXISTS words_words ON {s}.words
    USING gin (words) WITH (gin_pending_list_limit = 1024);
CREATE UNLOGGED TABLE IF NOT EXISTS {s}.scratch (
    put_at timestamptz NOT NULL, expires_at timestamptz, key text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);
"""

# The words of a position come as one text with spaces between them.
_INDEX = """
CREATE OR REPLACE FUNCTION {s}.index_1(
    p_durable boolean, p_patience text, p_name text, p_number bigint, p_before bytea,
    p_after bytea, p_positions bigint[], p_words text[]
) RETURNS boolean LANGUAGE plpgsql {planning} AS $index$
DECLARE
    v_set text;
    v_number bigint;
BEGIN
    {begin}
    IF p_before IS NULL THEN
        DELETE FROM {s}.indexed WHERE name = p_name RETURNING number INTO v_number;
        DELETE FROM {s}.words WHERE scope = v_number;
        INSERT INTO {s}.indexed (number, name, state) VALUES (p_number, p_name, p_after)
            ON CONFLICT DO NOTHING;
    ELSE
        UPDATE {s}.indexed SET state = p_after
            WHERE name = p_name AND number = p_number AND state = p_before;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM {s}.words w USING unnest(p_positions) g(position)
        WHERE p_before IS NOT NULL AND w.scope = p_number AND w.position = g.position;
    INSERT INTO {s}.words (scope, position, words)
        SELECT p_number, g.position, array_to_tsvector(string_to_array(g.words, ' '))
        FROM unnest(p_positions, p_words) g(position, words) WHERE g.words <> '';
    IF cardinality(p_positions) >= {batch} THEN
        BEGIN
            PERFORM gin_clean_pending_list('{s}.words_words'::regclass);
        EXCEPTION WHEN insufficient_privilege THEN
            NULL; -- Only who owns the index may do so; searches take somewhat longer then.
        END;
    END IF;
    RETURN true;
END $index$;
CREATE OR REPLACE FUNCTION {s}.unindex_1(p_durable boolean, p_patience text, p_name text)
RETURNS void LANGUAGE plpgsql {planning} AS $unindex$
DECLARE
    v_set text;
    v_number bigint;
BEGIN
    {begin}
    DELETE FROM {s}.indexed WHERE name = p_name RETURNING number INTO v_number;
    DELETE FROM {s}.words WHERE scope = v_number;
END $unindex$;
"""

# A lexeme names its scope and block, so that is all that the index is asked for: any other
# condition could make the planner walk through a scope's positions instead. An index of this
# kind is only ever read through a bitmap: without bitmaps, every search would read all rows.
_FIND = """
CREATE OR REPLACE FUNCTION {s}.find_1(
    p_name text, p_state bytea, p_prefixes text[], p_after bigint, p_before bigint,
    p_newest boolean, p_limit bigint
) RETURNS bigint[] LANGUAGE plpgsql STABLE {planning} SET enable_bitmapscan = on AS $find$
DECLARE
    v_number bigint;
    v_from bigint := p_after;
    v_to bigint := p_before;
    v_at bigint;
    v_begin text;
    v_prefix text;
    v_query text;
    v_asked tsquery;
    v_found bigint[] := ARRAY[]::bigint[];
    v_some bigint[];
BEGIN
    SELECT number INTO v_number FROM {s}.indexed WHERE name = p_name AND state = p_state;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    LOOP
        IF p_newest THEN
            SELECT position INTO v_at FROM {s}.words
                WHERE scope = v_number AND position > v_from AND position < v_to
                ORDER BY position DESC LIMIT 1;
        ELSE
            SELECT position INTO v_at FROM {s}.words
                WHERE scope = v_number AND position > v_from AND position < v_to
                ORDER BY position LIMIT 1;
        END IF;
        EXIT WHEN v_at IS NULL;
        v_begin := to_hex(v_number) || 'g' || to_hex(v_at >> {bits}) || 'g';
        v_query := '';
        FOREACH v_prefix IN ARRAY p_prefixes LOOP
            v_prefix := replace(replace(v_begin || v_prefix, '\\', '\\\\'), '''', '''''');
            v_query := v_query || CASE WHEN v_query = '' THEN '' ELSE ' & ' END
                || '(''' || v_prefix || ''':* | ''' || v_begin || '{many}'')';
        END LOOP;
        v_asked := v_query::tsquery;
        SELECT array_agg(f.position) INTO v_some FROM (
            SELECT w.position FROM {s}.words w
            WHERE w.words @@ v_asked AND w.position + 0 > v_from AND w.position + 0 < v_to
            ORDER BY CASE WHEN p_newest THEN -w.position ELSE w.position END
            LIMIT p_limit - cardinality(v_found)
        ) f;
        v_found := v_found || coalesce(v_some, ARRAY[]::bigint[]);
        EXIT WHEN cardinality(v_found) >= p_limit;
        IF p_newest THEN
            v_to := v_at >> {bits} << {bits};
        ELSE
            v_from := ((v_at >> {bits}) + 1 << {bits}) - 1;
        END IF;
    END LOOP;
    RETURN v_found;
END $find$;
"""

FUNCTIONS = _INDEX + _FIND
