-- Appends a record to the log of its space, and moves refs.
--
-- ARGV: the epoch at which the record was made; the record that its frame leans on, or ''; 8 bytes
-- of a hash of its write id, and among how many of the latest records to look for it; the key of
-- the operation with its length in front; the frame with its crc32 in front; '1' if something that
-- it needs was not found; '1' if it brings nodes; the limit of the store, or ''. Then lists with
-- their lengths in front: fences (name, token), moves (name, expected, target, of which '' is
-- none), shared objects that it leads to, and such that it brings (id, bytes, what is said of it).
--
-- An entry of the tail is the mark of the write id, how many records the one is back that it leans
-- on (1 byte, or 0), the key, the crc32, the frame, and a check of all but the frame.
local known, dictionary, mark, latest = take(), tonumber(take()), take(), tonumber(take())
local key, sealed, missing, brings, limit = take(), take(), take(), take(), tonumber(take())
local row = read_row()
local sequence = row.last + 1

local entries = latest > 0 and call('LRANGE', tail, -latest, -1) or {}
for at = #entries, 1, -1 do
    if string.sub(entries[at], 1, 8) == mark then
        return {'repeated', row.last - #entries + at}
    end
end
if latest > #entries and row.packed > 0 then
    local marks = call('GET', writes) or ''
    local found = string.find(marks, mark, 1, true)
    while found and found % 8 ~= 1 do
        found = string.find(marks, mark, found + 1, true)
    end
    if found then
        return {'repeated', row.packed - (#marks - found + 1) / 8 + 1}
    end
end

local answer
times(function(at)
    local name, token = take(), take()
    local held = call('HGET', root .. ':leases:' .. space, name) or '0'
    if string.match(held, '^%d+') ~= token then -- The fence of who holds nothing has token 0.
        answer = answer or {'lost', at}
    end
end)

local refs = {}
local function ref_mark(name, target, moved)
    return check(space .. '\0' .. name .. '\0' .. target .. '\0' .. moved)
end

times(function(at)
    local name, expected, target = take(), take(), take()
    local found = call('HGET', space_key, name)
    local old = ''
    if found then
        local moved = string.sub(found, 45)
        old = string.sub(found, 1, 32)
        if ref_mark(name, old, moved) ~= string.sub(found, 33, 44) then
            damaged()
        end
        row.sum = row.sum - number(string.sub(found, 33, 44))
    end
    if old ~= expected then
        answer = answer or {'moved', at, old}
    end
    local moved = string.format('%.0f', sequence)
    local fresh = ref_mark(name, target, moved)
    if target ~= '' then
        row.sum = row.sum + number(fresh)
    end
    refs[at] = {name = name, value = target ~= '' and target .. fresh .. moved}
end)
if answer then
    return answer
end

local epoch = row.epoch + runs()
if tonumber(known) ~= epoch then
    return {'epoch', epoch}
elseif missing == '1' then
    return {'missing', ''}
end

local absent, named, brought, unstaged = {}, {}, {}, {}
times(function()
    named[#named + 1] = take()
end)
local more = 0
times(function()
    local id, size, about = take(), tonumber(take()), take()
    if call('HEXISTS', root .. ':objects', id) == 0 then
        if call('EXISTS', root .. ':object:' .. id) == 0 then
            unstaged[#unstaged + 1] = id
        end
        more = more + size
        brought[id] = about
    else
        brought[id] = false
    end
end)
for _, id in ipairs(named) do
    if brought[id] == nil and call('HEXISTS', root .. ':objects', id) == 0 then
        absent[#absent + 1] = id
    end
end
if #absent > 0 then
    return {'missing', table.concat(absent)}
elseif #unstaged > 0 then
    return {'unstaged', table.concat(unstaged)}
end
local some_condemned = next(brought) or #named > 0
if some_condemned then
    some_condemned = call('HLEN', root .. ':condemned') > 0
    call('SCARD', names)
end

local back = 0
if dictionary then
    back = sequence - dictionary
    if dictionary <= row.packed or back < 1
        or math.floor((dictionary - 1) / 16) ~= math.floor((sequence - 1) / 16) then
        return {'alone'} -- What the frame leans on was packed, or is of another group.
    end
end
local head = mark .. string.char(back) .. key .. string.sub(sealed, 1, 4)
local bound = check(space .. '\0' .. string.format('%.0f', sequence) .. '\0' .. head)
local entry = mark .. string.char(back) .. key .. sealed .. string.sub(bound, 1, 8)
more = more + #entry + 16 + (row.new and 400 or 0)
local before = used()
if limit and brings == '1' and before + more > limit then
    return {'full', before, more}
end
local listed = row.new and (call('GET', root .. ':listed') or 0) + 0

-- From here on everything is written.
if brings ~= '1' then
    write_anyway()
end
call('RPUSH', tail, entry)
for _, ref in ipairs(refs) do
    if ref.value then
        call('HSET', space_key, ref.name, ref.value)
    else
        call('HDEL', space_key, ref.name)
    end
end
row.last, row.sum = sequence, row.sum % MARKS
write_row(row)
for id, about in pairs(brought) do
    if about then
        call('PERSIST', root .. ':object:' .. id)
        call('HSET', root .. ':objects', id, about)
    elseif some_condemned then
        call('HDEL', root .. ':condemned', id)
    end
end
for _, id in ipairs(named) do
    call('SADD', names, id)
    if some_condemned then
        call('HDEL', root .. ':condemned', id)
    end
end
if row.new then
    call('SADD', root .. ':spaces', space)
    local sum = (listed + number(check(space))) % MARKS
    call('SET', root .. ':listed', string.format('%.0f', sum))
end
use(more)

-- A user without the right to publish commits all the same; then watchers look at intervals.
redis.pcall('PUBLISH', root .. ':wake', space)
return {'done', sequence, epoch}
