-- Records of a space, all at one moment: those of the tail between two numbers, with the first of
-- them in front, or the segment that holds the second one, with -1 in front.
--
-- ARGV: the two numbers.
local first, last = tonumber(take()), tonumber(take())
local row = read_row()
if last > row.packed then
    first = math.max(first, row.packed + 1)
    return {first, call('LRANGE', tail, first - row.packed - 1, last - row.packed - 1)}
end
local found = call('ZRANGEBYSCORE', segments, last, '+inf', 'LIMIT', 0, 1)[1]
return {-1, found and call('GET', segment_key(found)) or false}
