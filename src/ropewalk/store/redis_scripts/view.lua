-- A space at one moment: the number of its last operation, the epoch, and its refs whose names
-- begin so, names and records by turns. Not a transaction, which a full server refuses.
--
-- KEYS[1]: the root of the store's keys. ARGV: the space, the beginning of the names, and the
-- header of the store: if another is there, or none, there is no epoch.
local call, root = redis.call, KEYS[1]
local space, prefix, header = unpack(ARGV)
local epoch = call('GET', root .. ':header') == header and call('GET', root .. ':epoch')
local found = {call('LLEN', root .. ':log:' .. space), epoch}
local refs = call('HGETALL', root .. ':refs:' .. space)
for at = 1, #refs, 2 do
    if string.sub(refs[at], 1, #prefix) == prefix then
        found[#found + 1] = refs[at]
        found[#found + 1] = refs[at + 1]
    end
end
return found
