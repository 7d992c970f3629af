# What a worker does, with Dalli: ruby binary.rb PORT
require "dalli"

PORT = ARGV[0]

def client(options = {})
  Dalli::Client.new("127.0.0.1:#{PORT}", { socket_timeout: 20 }.merge(options))
end

def want(got, expected)
  raise "got #{got.inspect[0, 200]}, want #{expected.inspect[0, 200]}" unless got == expected
end

a, b = client, client

want(a.version.values[0].match?(/\A\d+\.\d+\.\d+\z/), true)
want(a.stats.values[0]["pid"].to_i > 1, true)

# Bodies and types are kept; the client marshals, or compresses, what is not a plain string.
bodies = ["", "\0", "a\r\nb", Random.bytes(100_000), "x" * 1_000_000, 42, 1.5, nil, { "k" => [1, "two", nil] }]
bodies.each { |body| want(!!a.set("odd", body, 3600), true) }
bodies.each do |body|
  got, receipt = a.get_cas("odd")
  want(got.is_a?(String) ? got.b : got, body.is_a?(String) ? body.b : body)
  want(receipt > 0, true)
  want(a.delete("odd"), true)
end
want(a.get("odd"), nil)
want(!!a.delete("odd"), false)

# Plain strings, from any client.
raw = client(raw: true)
want(!!raw.set("raw", "plain"), true)
want(raw.get("raw"), "plain")
want(raw.delete("raw"), true)

# Acks by receipt from another connection; nack; wait.
a.set("work", "one")
a.set("work", "two")
_, receipt = a.get_cas("work")
want(b.get("work"), "two")
want(b.delete_cas("work", receipt), true)
want(!!a.delete_cas("work", receipt), false)
want(b.delete("work/release=1"), true)
want(a.get("work/t=20"), nil)
want(a.get("work/t=15000"), "two")
want(a.delete("work"), true)

# A lease: gat and touch.
a.set("lease", "kept")
c = client
want(c.gat("lease", 60), "kept")
want(!!c.touch("lease", 1), true)
c.close
want(b.get("lease/t=15000"), "kept")
want(!!a.touch("lease", 60), false)
want(b.delete("lease"), true)

# Several at once under tags, with their receipts.
%w[1 2 3].each { |body| a.set("tags", body) }
got = a.get_multi("tags/n=x", "tags/n=y", "none")
want(got, "tags/n=x" => "1", "tags/n=y" => "2")
want(a.delete("tags/n=y"), true)
want(a.delete("tags/n=x/release=0"), true)
want(a.get("tags"), "1")
want(a.delete("tags"), true)
want(a.get_multi("none", "nothing"), {})

# Progress is saved by cas; add looks at the queue.
_, receipt = a.get_cas("tags")
want(!!a.set_cas("tags", "three", receipt), true)
want(!!a.set_cas("tags", "x", receipt), false)
want(a.get("tags"), "three")
want(a.delete("tags"), true)
want(!!a.add("single", "x"), true)
want(!!a.add("single", "y"), false)
a.replace("none", "y") # Dalli takes a replace that found nothing for a success, so only the queue tells
want(a.get("none"), nil)

# Quiet writes: a pipeline whose answers are only its errors.
a.multi { 100.times { |i| a.set("many", "job #{i}") } }
100.times do |i|
  want(a.get("many"), "job #{i}")
  want(a.delete("many"), true)
end

# A namespace is part of the queue's name.
spaced = client(namespace: "app")
spaced.set("q", "x")
want(a.get("app:q"), "x")
want(a.delete("app:q"), true)

# What has no lease goes back with its connection.
a.set("mortal", "job")
d = client
want(d.get("mortal"), "job")
d.close
want(a.get("mortal/t=15000"), "job")
want(a.delete("mortal"), true)
puts "ok"
