# Values of all types come back as they were, with Dalli: ruby values.rb put|get PORT
require "dalli"

mode, port = ARGV
queue = Dalli::Client.new("127.0.0.1:#{port}", compress: true)
values = {
  "text" => "accents: é à ü \u{1F600}",
  "whole" => 42,
  "hash" => { "a" => [1, 2.5, nil], sym: true },
  "time" => Time.at(1_318_000_000),
  "compressed" => "compresses well " * 60_000,
}
values.each do |name, value|
  if mode == "put"
    queue.set("rb-#{name}", value) or abort "#{name}: not stored"
    next
  end
  queue.get("rb-#{name}") == value or abort "#{name}: got another value"
  queue.delete("rb-#{name}") or abort "#{name}: not acked"
end
puts "ok"
