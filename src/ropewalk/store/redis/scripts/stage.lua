-- Puts a segment where only one script will look for it. What nobody asks for ends by itself.
--
-- ARGV: in the place of a space the name; the bytes.
write_anyway()
call('SET', root .. ':staged:' .. space, take(), 'EX', 3600)
