-- The frames that some objects are stored against, directly and indirectly: ids and frames
-- by turns. Saves one round trip for each step of a chain.
--
-- KEYS[1]: the root of the store's keys. ARGV[1]: the ids of the first bases, one behind the
-- other.
local call, root, ids = redis.call, KEYS[1], ARGV[1]
local seen, found = {}, {}

-- Where a frame says what it is stored against: behind tag, kind and a varint.
local function base_of(frame)
    local start = 1
    local tag = string.byte(frame, 1) or 0
    if tag == 255 then -- A stub: the beginning of the frame stands behind its length.
        start = 6
        tag = string.byte(frame, 6) or 0
    end
    if tag < 65 or tag > 72 then
        return nil
    end
    local at = start + 2
    while (string.byte(frame, at) or 0) >= 128 do
        at = at + 1
    end
    local base = string.sub(frame, at + 1, at + 32)
    return #base == 32 and base or nil
end

for start = 1, #ids, 32 do
    local id = string.sub(ids, start, start + 31)
    while id and not seen[id] do
        seen[id] = true
        local frame = call('HGET', root .. ':frames', id)
        if not frame then
            break
        end
        found[#found + 1] = id
        found[#found + 1] = frame
        id = base_of(frame)
    end
end
return found
