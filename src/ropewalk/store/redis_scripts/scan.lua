-- A part of all objects: the next cursor ('0' at the end), then for each object its id, the
-- beginning of its frame, the bytes of the frame, and 1 if it is condemned.
--
-- KEYS[1]: the root of the store's keys. ARGV: the cursor, and about how many objects.
local call, root = redis.call, KEYS[1]
local cursor, pairs_found = unpack(call('HSCAN', root .. ':frames', ARGV[1], 'COUNT', ARGV[2]))
local found = {cursor}
for at = 1, #pairs_found, 2 do
    local id, frame = pairs_found[at], pairs_found[at + 1]
    local size, first = #frame, 1
    if string.byte(frame, 1) == 255 then -- A stub: its frame is apart.
        size = struct.unpack('>I4', frame, 2)
        first = 6
    end
    found[#found + 1] = id
    found[#found + 1] = string.sub(frame, first, first + 47)
    found[#found + 1] = size
    found[#found + 1] = call('HEXISTS', root .. ':condemned', id)
end
return found
