-- What the store knows of objects: for each a letter, the depth of its frame from 'a' on, in
-- capitals if it is condemned, or '-' if it is absent.
--
-- KEYS[1]: the root of the store's keys. ARGV[1]: the ids, one behind the other.
local call, root, ids = redis.call, KEYS[1], ARGV[1]
local found = {}
for start = 1, #ids, 32 do
    local id = string.sub(ids, start, start + 31)
    local frame = call('HGET', root .. ':frames', id)
    local letter = '-'
    if frame then
        local tag = string.byte(frame, 1) or 0
        if tag == 255 then -- A stub: its frame is apart.
            tag = string.byte(frame, 6)
        end
        local first = call('HEXISTS', root .. ':condemned', id) == 1 and 65 or 97
        letter = string.char(first + math.min(math.max(tag - 64, 0), 8))
    end
    found[#found + 1] = letter
end
return table.concat(found)
