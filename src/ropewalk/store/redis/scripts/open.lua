-- Finds a store, or makes it: run once for each new connection.
--
-- KEYS[1]: the root of the store's keys. ARGV: the server's run id; the header of a new store,
-- or '' if none may be made; '1' on the first connection of a program; and the time in seconds.
-- Gives the header, false if there is no store, or an error.
local call, root = redis.call, KEYS[1]

local header = call('GET', root .. ':header')
if call('EXISTS', root .. ':epoch') == 1 then
    return {err = 'FORMAT1'}
elseif not header then
    if call('EXISTS', root .. ':server', root .. ':objects', root .. ':spaces') > 0 then
        return {err = 'HEADLESS'}
    elseif ARGV[2] == '' then
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
    {'LTRIM', root .. ':header', 0, 0}, {'SADD', root .. ':header', 'a'},
    {'SREM', root .. ':header', 'a'}, {'ZADD', root .. ':header', 1, 'a'},
    {'INCRBY', root .. ':header', 1}, {'SET', nothing, 'a', 'XX'}, {'DEL', nothing},
    {'UNLINK', nothing}, {'PERSIST', nothing}, {'RENAME', nothing, nothing},
}) do
    local reply = redis.pcall(unpack(command))
    if type(reply) == 'table' and reply.err
        and (string.find(reply.err, 'NOPERM') or string.find(reply.err, 'The user executing')) then
        return {err = 'NOPERM ' .. command[1] .. ' is not allowed'}
    end
end

-- Another run of the server may have lost the last moments of the one before. What a writer knew
-- of records may be wrong then, so how often that was counts in the epoch of each space.
local runs, known = string.match(call('GET', root .. ':server') or '', '^(%d+) (.*)$')
if known ~= ARGV[1] then
    call('DEL', nothing) -- See common.lua.
    -- It may have lost that count, too, so the next one is never one of before.
    runs = runs and math.max(runs + 1, ARGV[4]) or 0
    call('SET', root .. ':server', string.format('%.0f', runs) .. ' ' .. ARGV[1])
end
return header
