-- A step of a collection, on shared objects.
--
-- ARGV: the step; the collection's own mark; ids, one behind the other. `condemn` marks them.
-- `delete` removes those that still have that mark: a commit that leads to one, or brings it again,
-- takes it away. `delete all` removes nothing, and gives nothing, unless all have it. `discard`
-- removes them whatever they have. Gives how many were removed, and their bytes.
local step, mark, ids = take(), take(), take()
local objects, condemned = root .. ':objects', root .. ':condemned'
local chosen, freed = {}, 0

for at = 1, #ids, 32 do
    local id = string.sub(ids, at, at + 31)
    local doomed = step == 'discard' or call('HGET', condemned, id) == mark
    if step == 'condemn' then
        doomed = call('HEXISTS', objects, id) == 1
    elseif step == 'delete all' and not doomed then
        return false
    end
    if doomed then
        chosen[#chosen + 1] = id
    end
end
used()

write_anyway()
for _, id in ipairs(chosen) do
    if step == 'condemn' then
        call('HSET', condemned, id, mark)
    else
        freed = freed + call('STRLEN', root .. ':object:' .. id)
        call('UNLINK', root .. ':object:' .. id)
        call('HDEL', objects, id)
        call('HDEL', condemned, id)
    end
end
if step ~= 'condemn' then
    use(-freed - 210 * #chosen)
end
return {#chosen, freed}
