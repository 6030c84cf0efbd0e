-- Swaps segments for what a collection left of them, and raises the epoch of the space.
--
-- ARGV: the epoch at which it looked; the last record that it saw; shared objects to which the space
-- no longer leads, one behind the other; then, with their number in front, for each segment its last
-- record and where the new one was staged. Gives 1; 0 if another collection was faster, and 2 if
-- records came since.
local epoch, last, lost = tonumber(take()), tonumber(take()), take()
local row, fresh, more, answer = read_row(), {}, 0, nil
if row.epoch + runs() ~= epoch then
    return 0
elseif row.last ~= last then
    return 2
end
times(function(at)
    local key, staged = segment_key(take()), root .. ':staged:' .. take()
    if call('EXISTS', key, staged) < 2 then
        answer = 0
    else
        more = more + call('STRLEN', staged) - call('STRLEN', key)
        fresh[at] = {key = key, staged = staged}
    end
end)
used()
call('SCARD', names)
if answer then
    return answer
end

write_anyway()
for _, one in ipairs(fresh) do
    call('RENAME', one.staged, one.key)
    call('PERSIST', one.key)
end
for at = 1, #lost, 32 do
    call('SREM', names, string.sub(lost, at, at + 31))
end
row.epoch = row.epoch + 1
write_row(row)
use(more)
return 1
