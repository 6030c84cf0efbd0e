-- Puts a segment in the place of its records; 0 if somebody else did.
--
-- ARGV: the first and the last record, and where the segment was staged. Then, with their number in
-- front: for each commit in it how the index lists it (18 digits), and its record.
--
-- A bucket of the index is a check of it, then for each commit and each key ',' and 16 digits of
-- its hash, ':' and its record.
local first, last, staged = tonumber(take()), tonumber(take()), root .. ':staged:' .. take()
local row = read_row()
if row.packed + 1 ~= first or row.last < last or last % 16 > 0 and row.last > last then
    return 0 -- Another one was faster, or a record that came since may lean on what would go.
elseif call('EXISTS', staged) == 0 then
    return 0
end
local buckets, changed = {}, {}

local function list(digits, sequence)
    local bucket = string.sub(digits, 1, 2)
    buckets[bucket] = (buckets[bucket] or '')
        .. ',' .. string.sub(digits, 3, 18) .. ':' .. string.format('%.0f', sequence)
end

times(function()
    local digits = take()
    list(digits, take())
end)
local marks, freed = call('GET', writes) or '', 0
for at, entry in ipairs(call('LRANGE', tail, 0, last - first)) do
    marks = marks .. string.sub(entry, 1, 8)
    freed = freed + #entry + 16
    local length = string.byte(entry, 10)
    if length > 0 then
        list(redis.sha1hex('key' .. string.sub(entry, 11, 10 + length)), first + at - 1)
    end
end
local more = call('STRLEN', staged) + 150
for bucket, added in pairs(buckets) do
    local old = call('HGET', index, bucket)
    row.buckets = row.buckets + (old and 0 or 1)
    local listed = string.sub(old or '', 9) .. added
    changed[#changed + 1] = bucket
    changed[#changed + 1] = string.sub(check(space .. '\0' .. bucket .. '\0' .. listed), 1, 8) .. listed
    more = more + #added + (old and 0 or 12)
end
used()
call('ZCARD', segments)

write_anyway()
call('RENAME', staged, segment_key(last))
call('PERSIST', segment_key(last))
call('ZADD', segments, last, string.format('%.0f', last))
for at = 1, #changed, 2 do
    call('HSET', index, changed[at], changed[at + 1])
end
call('LTRIM', tail, last - first + 1, -1)
call('SET', writes, string.sub(marks, -8 * 256))
row.packed = last
write_row(row)
use(more - freed)
return 1
