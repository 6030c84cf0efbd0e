"""The function that makes several small commits at once, each to a space of its own.

It makes those that are as most are: the epoch is the one that they know, one ref is where they
expect it, what their frames are stored against is there, nothing is condemned. The others
it leaves as they were, and answers nothing for them: they are then sent one by one.
"""

from __future__ import annotations

# The numbers are taken first, in the order of the spaces' names, which locks the spaces. Every
# look at what others did comes after. A write that was made before is found by its ref, which
# has moved since; if it was moved back, by the unique index over writes, and nothing is done.
GROUP = """
CREATE OR REPLACE FUNCTION {s}.commits_1(
    p_durable boolean, p_patience text, p_epoch integer,
    p_spaces text[], p_names text[], p_expected bytea[], p_moved bytea[],
    p_writes bigint[], p_digests bigint[], p_records bytea[],
    p_owners bytea, p_keys uuid[], p_rests bytea, p_depths bytea, p_bases uuid[],
    p_built_upon integer, p_frames bytea[]
) RETURNS bigint[] LANGUAGE plpgsql {planning} AS $commits$
#variable_conflict use_column
DECLARE
    v_set text;
    v_at integer[];
    v_spaces integer[];
    v_lasts bigint[];
    v_refused integer[];
    v_answers bigint[];
BEGIN
    {begin}
    WITH taken AS (
        UPDATE {s}.spaces SET sequence = sequence + 1 WHERE name = ANY (p_spaces)
            RETURNING name, number, sequence
    ) SELECT array_agg(array_position(p_spaces, name)), array_agg(number), array_agg(sequence)
        INTO v_at, v_spaces, v_lasts FROM taken;
    SELECT array_agg(m.at) FILTER (WHERE r.space IS NULL),
            array_agg((m.sequence << 9) | (m.at << 1) | (w.space IS NOT NULL)::integer)
                FILTER (WHERE r.space IS NOT NULL)
        INTO v_refused, v_answers
        FROM unnest(v_at, v_spaces, v_lasts) m(at, space, sequence)
        LEFT JOIN {s}.refs r ON r.space = m.space AND r.name = p_names[m.at]
            AND r.target = p_expected[m.at]
            AND p_epoch = (SELECT epoch FROM {s}.facts WHERE one)
            AND NOT EXISTS (SELECT FROM {s}.condemned WHERE key = ANY (p_keys || p_bases))
            AND p_built_upon = (
                SELECT count(*) FROM {s}.objects WHERE key = ANY (p_bases)
                    AND depth < get_byte(p_depths, array_position(p_bases, key) - 1)
            )
        LEFT JOIN {s}.watches w ON w.space = p_spaces[m.at] AND w.until > now();
    IF v_refused IS NOT NULL THEN
        UPDATE {s}.spaces SET sequence = sequence - 1
            WHERE name = ANY (ARRAY(SELECT p_spaces[at] FROM unnest(v_refused) m(at)));
    END IF;
    IF v_answers IS NULL THEN
        RETURN v_answers;
    END IF;
    WITH stored AS (
        -- In the order of their keys, so that two commits never wait for each other.
        INSERT INTO {s}.objects (depth, key, base, rest, frame)
            SELECT get_byte(p_depths, f.at::integer - 1), f.key, f.base,
                substring(p_rests FROM 16 * f.at::integer - 15 FOR 16), f.frame
            FROM unnest(p_keys, p_bases, p_frames) WITH ORDINALITY f(key, base, frame, at)
            WHERE v_refused IS NULL OR get_byte(p_owners, f.at::integer - 1) <> ALL (v_refused)
            ON CONFLICT (key) DO NOTHING
    ), moved AS (
        UPDATE {s}.refs r SET target = p_moved[m.at], sequence = m.sequence
            FROM unnest(v_at, v_spaces, v_lasts) m(at, space, sequence)
            WHERE r.space = m.space AND r.name = p_names[m.at]
                AND (v_refused IS NULL OR m.at <> ALL (v_refused))
    )
    INSERT INTO {s}.operations (space, epoch, sequence, write, digest, record)
        SELECT m.space, p_epoch, m.sequence, p_writes[m.at], p_digests[m.at], p_records[m.at]
        FROM unnest(v_at, v_spaces, v_lasts) m(at, space, sequence)
        WHERE v_refused IS NULL OR m.at <> ALL (v_refused);
    RETURN v_answers;
END $commits$;
"""
