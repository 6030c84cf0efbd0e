-- Replaces the record of a lease if it is the expected one; gives the new one, or false.
--
-- ARGV: the name, the expected record ('' for none), the new one ('' to remove it), and '1' to put
-- a new token in front of it.
local name, expected, record, grant = take(), take(), take(), take()
local leases = root .. ':leases:' .. space

if (call('HGET', leases, name) or '') ~= expected then
    return false
end
if record == '' then
    call('HDEL', leases, name)
    return ''
end
if grant == '1' then
    -- The field without a name is the last token that was given.
    record = string.format('%.0f', call('HINCRBY', leases, '', 1)) .. record
end
call('HSET', leases, name, record)
return record
