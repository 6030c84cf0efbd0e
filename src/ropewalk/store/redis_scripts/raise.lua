-- Raises the epoch, which all spaces have in common; gives the new one.
--
-- KEYS[1]: the root of the store's keys.
redis.call('DEL', KEYS[1] .. ':nothing') -- Also where memory is full: see commit.lua.
return redis.call('INCR', KEYS[1] .. ':epoch')
