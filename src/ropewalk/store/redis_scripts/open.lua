-- Finds a store, or makes it: run once for each new connection.
--
-- KEYS[1]: the root of the store's keys. ARGV: the server's run id; the header of a new store,
-- or '' if none may be made; and '1' on the first connection of a program.
-- Gives the header, false if there is no store, or an error.
local call, root = redis.call, KEYS[1]

local header = call('GET', root .. ':header')
if not header then
    if call('EXISTS', root .. ':epoch', root .. ':frames', root .. ':spaces') > 0 then
        return {err = 'HEADLESS'}
    end
    if ARGV[2] == '' then
        return false
    end
    header = ARGV[2]
    call('SET', root .. ':header', header)
end

-- A script is not undone, so a user who may not run all of one must not begin. These change
-- nothing: the header is no hash, list, set or number, and the other key does not exist.
local nothing = root .. ':nothing'
for _, command in ipairs(ARGV[3] ~= '1' and {} or {
    {'HSET', root .. ':header', 'a', 'b'}, {'HINCRBY', root .. ':header', 'a', 1},
    {'HDEL', root .. ':header', 'a'}, {'RPUSH', root .. ':header', 'a'},
    {'SADD', root .. ':header', 'a'}, {'INCR', root .. ':header'},
    {'DECRBY', root .. ':header', 1}, {'APPEND', nothing, ''}, {'SET', nothing, 'a', 'XX'},
    {'DEL', nothing}, {'UNLINK', nothing}, {'PERSIST', nothing}, {'RENAME', nothing, nothing},
}) do
    local reply = redis.pcall(unpack(command))
    if type(reply) == 'table' and reply.err
        and (string.find(reply.err, 'NOPERM') or string.find(reply.err, 'The user executing')) then
        return {err = 'NOPERM ' .. command[1] .. ' is not allowed'}
    end
end

-- Another run of the server may have lost the last moments of the one before. What a
-- writer knew of objects may be wrong then, so it must not trust an epoch from before.
if call('GET', root .. ':server') ~= ARGV[1] then
    call('DEL', nothing) -- See commit.lua.
    call('SET', root .. ':server', ARGV[1])
    call('INCR', root .. ':epoch')
end
return header
