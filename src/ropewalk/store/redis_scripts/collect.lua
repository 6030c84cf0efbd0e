-- A step of a collection, on some objects.
--
-- KEYS[1]: the root of the store's keys. ARGV: the step, the collection's number, and the
-- ids, one behind the other. Gives the ids of those that were changed, in the same way.
local call, root = redis.call, KEYS[1]
local step, collection, ids, overhead = unpack(ARGV)
local frames, condemned = root .. ':frames', root .. ':condemned'

call('DEL', root .. ':nothing') -- Also where memory is full: see commit.lua.

local function condemn(id)
    if call('HEXISTS', frames, id) == 0 then
        return false
    end
    call('HSET', condemned, id, collection)
    return true
end

local function revive(id)
    return call('HDEL', condemned, id) == 1
end

local freed = 0

local function delete(id)
    if call('HGET', condemned, id) ~= collection then
        return false
    end
    local size = call('HSTRLEN', frames, id)
    if size < 64 then
        local frame = call('HGET', frames, id)
        if string.byte(frame, 1) == 255 then -- A stub: its frame is apart.
            size = struct.unpack('>I4', frame, 2)
            call('UNLINK', root .. ':apart:' .. id)
        end
    end
    call('HDEL', frames, id)
    call('HDEL', condemned, id)
    freed = freed + size + overhead
    return true
end

local change = ({condemn = condemn, revive = revive, delete = delete})[step]
local changed = {}
for start = 1, #ids, 32 do
    local id = string.sub(ids, start, start + 31)
    if change(id) then
        changed[#changed + 1] = id
    end
end
if freed > 0 then
    call('DECRBY', root .. ':bytes', freed)
end
return table.concat(changed)
