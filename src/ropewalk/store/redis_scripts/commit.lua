-- One commit: decides as `decide` of _decide.py does, in the same order, and applies it.
--
-- KEYS[1]: the root of the store's keys. ARGV: first what the batch has once, then three
-- lists with their lengths in front: the fences, a name and a token each; the moves, a name
-- and two ids each, of which '' is none; the objects, each with its id, behind it the id of
-- its base if it has one, and its frame. Ids that belong together stand one behind the other.
--
-- A large frame was sent before, to a key that ends by itself. In its place comes a stub: the
-- byte 255, the length of the frame in 4 bytes, and the beginning of the frame.
--
-- Everything is looked at before the first write, so an answer other than 'done' has changed
-- nothing. A script is not undone if it fails, so no write may fail: keys are looked at even
-- where that only shows that they are what they must be.
local call, root = redis.call, KEYS[1]
local taken = 0

local function take()
    taken = taken + 1
    return ARGV[taken]
end

local header, space, mark, digest = take(), take(), take(), take()
local known_epoch, needs, targets = take(), take(), take() -- needs is '-' if it was left out
local operation, limit, overhead, remembered = take(), tonumber(take()), take(), take()
local staged = root .. ':staged:' .. take() .. ':'

local frames, condemned = root .. ':frames', root .. ':condemned'
local log, refs = root .. ':log:' .. space, root .. ':refs:' .. space
local writes, leases = root .. ':writes:' .. space, root .. ':leases:' .. space

local epoch = call('GET', root .. ':epoch')
if call('GET', root .. ':header') ~= header or not tonumber(epoch) then
    return {'gone'}
end

-- The length of the log is the number of its last operation, so there can be no gap. Of the
-- latest operations, the marks of their write ids stand one behind the other, 8 bytes each.
local last = call('LLEN', log)
local marks = call('GET', writes) or ''
local found = string.find(marks, mark, 1, true)
while found and found % 8 ~= 1 do
    found = string.find(marks, mark, found + 1, true)
end
if found then
    return {'repeated', call('LINDEX', log, last - (#marks - found + 1) / 8)}
end

for number = 1, take() do
    local name, token = take(), take()
    local held = call('HGET', leases, name) or '0' -- The fence of who holds nothing: token 0.
    if string.match(held, '^%d+') ~= token then
        return {'lost', number}
    end
end

local moves = {}
for number = 1, take() do
    local name, expected, target = take(), take(), take()
    local actual = string.sub(call('HGET', refs, name) or '', 1, 32)
    if actual ~= expected then
        return {'moved', number, actual}
    end
    moves[number] = {name = name, target = target}
end

-- Objects. What is condemned may be read, but counts as absent.
local some_condemned = call('HLEN', condemned) > 0

local function is_there(id)
    return call('HEXISTS', frames, id) == 1
end

local function is_condemned(id)
    return some_condemned and call('HEXISTS', condemned, id) == 1
end

-- What a frame, or its stub, says: its bytes and its depth.
local function is_stub(frame)
    return string.byte(frame, 1) == 255
end

local function size_of(frame)
    return is_stub(frame) and struct.unpack('>I4', frame, 2) or #frame
end

local function depth_of(frame)
    return math.max(string.byte(frame, is_stub(frame) and 6 or 1) - 64, 0)
end

local stored, is_stored = {}, {}
for _ = 1, take() do
    local ids, frame = take(), take()
    local id, base = string.sub(ids, 1, 32), string.sub(ids, 33)
    if not is_there(id) or is_condemned(id) then
        stored[#stored + 1] = {id = id, base = base, frame = frame}
        is_stored[id] = true
    end
end

local required = targets
if known_epoch ~= epoch then
    if needs == '-' then
        return {'stale'}
    end
    required = required .. needs
end
local absent = {}
for start = 1, #required, 32 do
    local id = string.sub(required, start, start + 31)
    if not is_stored[id] and (not is_there(id) or is_condemned(id)) then
        absent[#absent + 1] = id
    end
end
if #absent > 0 then
    return {'missing', table.concat(absent)}
end

local function is_usable(base, depth)
    return is_stored[base]
        or is_there(base) and not is_condemned(base)
            and depth_of(call('HGET', frames, base)) < depth
end

local wrong = {}
for _, one in ipairs(stored) do
    if one.base ~= '' and (is_there(one.id) or not is_usable(one.base, depth_of(one.frame))) then
        wrong[#wrong + 1] = one.id
    end
end
if #wrong > 0 then
    return {'reframe', table.concat(wrong)}
end

local more = 0
for _, one in ipairs(stored) do
    if is_stub(one.frame) and call('EXISTS', staged .. one.id) == 0 then
        return {'unstaged'}
    end
    more = more + size_of(one.frame) + overhead
end
local used = (call('GET', root .. ':bytes') or 0) + 0 -- It fails here if it is no number.
if limit and more > 0 and used + more > limit then
    return {'full', used, more}
end

if last == 0 then
    call('SCARD', root .. ':spaces')
end

-- From here on everything is written. A server whose memory is full refuses a script only
-- at its first write. Refs may move even then: DEL, which is never refused, comes first.
if #stored == 0 then
    call('DEL', root .. ':nothing')
end

local function forget(id) -- A condemned object, in whose place another frame comes.
    local old = call('HGET', frames, id)
    if is_stub(old) then
        call('UNLINK', root .. ':apart:' .. id)
    end
    call('HDEL', condemned, id)
    more = more - size_of(old) - overhead
end

for _, one in ipairs(stored) do
    if is_condemned(one.id) then
        forget(one.id)
    end
    if is_stub(one.frame) then
        local apart = root .. ':apart:' .. one.id
        call('RENAME', staged .. one.id, apart)
        call('PERSIST', apart)
    end
    call('HSET', frames, one.id, one.frame)
end

local sequence = last + 1
for _, move in ipairs(moves) do
    if move.target == '' then
        call('HDEL', refs, move.name)
    else
        call('HSET', refs, move.name, move.target .. string.format('%.0f', sequence))
    end
end
-- A list of six in msgpack, of which the client has spelled the last four.
local entry = digest .. '\150' .. cmsgpack.pack(sequence, tonumber(epoch)) .. operation
call('RPUSH', log, entry)
if #marks < 16 * remembered then
    call('APPEND', writes, mark)
else
    call('SET', writes, string.sub(marks, -8 * remembered) .. mark)
end
if sequence == 1 then
    call('SADD', root .. ':spaces', space)
end
call('SET', root .. ':bytes', string.format('%.0f', used + more + #entry))

-- A user without the right to publish commits all the same; then watchers look at intervals.
redis.pcall('PUBLISH', root .. ':wake', space)
return {'done', sequence, tonumber(epoch)}
