-- Replaces the record of a lease if it is the expected one; gives the new one, or false.
--
-- KEYS[1]: the root of the store's keys. ARGV: the store's header, the space, the name, the
-- expected record ('' for none), the new one ('' to remove it), and '1' to put a new token
-- in front of it.
local call, root = redis.call, KEYS[1]
local header, space, name, expected, record, grant = unpack(ARGV)
local leases = root .. ':leases:' .. space

if call('GET', root .. ':header') ~= header then
    return 'gone'
end
if (call('HGET', leases, name) or '') ~= expected then
    return false
end
if record == '' then
    call('HDEL', leases, name)
    return ''
end
if grant == '1' then
    record = string.format('%.0f', call('HINCRBY', root .. ':tokens', space, 1)) .. record
end
call('HSET', leases, name, record)
return record
