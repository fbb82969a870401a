-- What a script sees. Refusals are errors at the line of the script that asked.
local ask, sleep, time, finish, search, say, known = ...

local function did(value, why)
  if why then error(why, 3) end
  return value
end

weir = {
  status = function() local status = did(ask("status")) return status end,
  set = function(what, value) local change = did(ask("set", what, value)) return change.change end,
  stop = function(port) local change = did(ask("stop", "port", port)) return change.change end,
  start = function(port) local change = did(ask("start", "port", port)) return change.change end,
  sleep = function(seconds) did(sleep(seconds)) end,
  time = time,
  finish = function() did(finish()) end,
  search = function(goal, least, most) local it = did(search(goal, least, most)) return it end,
}

local pack, concat, gmatch, tostring = table.pack, table.concat, string.gmatch, tostring

print = function(...)
  local words = pack(...)
  for place = 1, words.n do words[place] = tostring(words[place]) end
  say(concat(words, "\t"))
end

local function only(all, names)
  local kept = {}
  for name in gmatch(names, "%S+") do kept[name] = true end
  for name in pairs(all) do if not kept[name] then all[name] = nil end end
end

-- Functions that could run long or hold much without an instruction of Lua are left out, and so are those that catch errors.
only(table, "concat insert remove unpack")
only(string, "byte char format len lower reverse sub upper")
only(_G, known)
