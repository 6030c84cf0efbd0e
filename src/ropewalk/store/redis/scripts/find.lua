-- The records whose operations have a key, ascending; nothing if the index is damaged.
--
-- ARGV: the key; the bucket of the index that it is in, and what it is listed as there.
local key, bucket, name = take(), take(), take()
local row = read_row()
local listed = call('HGET', index, bucket) or ''
local sound = string.sub(check(space .. '\0' .. bucket .. '\0' .. string.sub(listed, 9)), 1, 8)
if call('HLEN', index) ~= row.buckets or listed ~= '' and string.sub(listed, 1, 8) ~= sound then
    return false
end
local found = {}
for sequence in string.gmatch(listed, ',' .. name .. ':(%d+)') do
    found[#found + 1] = tonumber(sequence)
end
for at, entry in ipairs(call('LRANGE', tail, 0, -1)) do
    if string.sub(entry, 11, 10 + string.byte(entry, 10)) == key then
        found[#found + 1] = row.packed + at
    end
end
return found
