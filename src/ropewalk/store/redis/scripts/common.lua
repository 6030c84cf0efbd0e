-- What each script begins with. KEYS[1]: the root of the store's keys. ARGV: the store's header,
-- a space (or ''), and what the script takes beyond that.
--
-- Everything is looked at before the first write: a script is not undone if it fails.
local call, root, header, space = redis.call, KEYS[1], ARGV[1], ARGV[2]
local taken = 2

if call('GET', root .. ':header') ~= header then
    return {err = 'GONE'}
end

local function take()
    taken = taken + 1
    return ARGV[taken]
end

-- Runs `each` as many times as the next argument says.
local function times(each)
    for number = 1, take() do
        each(number)
    end
end

-- Lack of memory never refuses this, and a script is only refused at its first write.
local function write_anyway()
    call('DEL', root .. ':nothing')
end

local function check(said)
    return string.sub(redis.sha1hex(header .. said), 1, 12)
end

local function number(mark)
    return tonumber(mark, 16)
end

local MARKS, ROW = 2 ^ 48, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%x+)$'
local space_key, tail = root .. ':space:' .. space, root .. ':tail:' .. space
local segments, index = root .. ':segments:' .. space, root .. ':index:' .. space
local writes, names = root .. ':writes:' .. space, root .. ':names:' .. space

local function segment_key(last)
    return root .. ':segment:' .. string.format('%.0f', last) .. ':' .. space
end

local function damaged()
    error('DAMAGED <' .. space .. '>')
end

-- Of the server: how often it was started anew since the store was made.
local function runs()
    return tonumber(string.match(call('GET', root .. ':server') or '', '^%d+')) or damaged()
end

local function read_row()
    local text = call('HGET', space_key, '')
    if not text then
        if call('SISMEMBER', root .. ':spaces', space) == 1 then
            damaged()
        end
        return {last = 0, packed = 0, epoch = 1, sum = 0, buckets = 0, new = true}
    end
    local last, packed, epoch, sum, buckets, mark = string.match(text, ROW)
    if not last or check(space .. '\0' .. string.sub(text, 1, -14)) ~= mark then
        damaged()
    end
    local row = {
        last = tonumber(last), packed = tonumber(packed), epoch = tonumber(epoch),
        sum = tonumber(sum), buckets = tonumber(buckets),
    }
    if call('LLEN', tail) ~= row.last - row.packed then
        damaged()
    end
    return row
end

local function write_row(row)
    local body = string.format(
        '%.0f %.0f %.0f %.0f %.0f', row.last, row.packed, row.epoch, row.sum, row.buckets
    )
    call('HSET', space_key, '', body .. ' ' .. check(space .. '\0' .. body))
end

-- About how many bytes the store takes.
local function used()
    return (call('GET', root .. ':bytes') or 0) + 0 -- It fails here if it is no number.
end

local function use(more)
    call('INCRBY', root .. ':bytes', string.format('%.0f', more + 0)) -- Never '-0'.
end
