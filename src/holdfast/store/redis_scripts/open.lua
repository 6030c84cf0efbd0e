-- Finds a store, or makes it: run once for each new connection.
--
-- KEYS[1]: the root of the store's keys. ARGV[1]: the server's run id.
-- ARGV[2]: the header of a new store, or '' if none may be made.
-- Gives the header, false if there is no store, or 'headless' if there is one without it.
local call, root = redis.call, KEYS[1]

local header = call('GET', root .. ':header')
if not header then
    if call('EXISTS', root .. ':epoch', root .. ':frames', root .. ':spaces') > 0 then
        return 'headless'
    end
    if ARGV[2] == '' then
        return false
    end
    header = ARGV[2]
    call('SET', root .. ':header', header)
end

-- Another run of the server may have lost the last moments of the one before. What a
-- writer knew of objects may be wrong then, so it must not trust an epoch from before.
if call('GET', root .. ':server') ~= ARGV[1] then
    call('DEL', root .. ':nothing') -- See commit.lua.
    call('SET', root .. ':server', ARGV[1])
    call('INCR', root .. ':epoch')
end
return header
