# Dalli, told what to do in lines: ruby story.rb PORT timeout=MS [OPTION]…
#
# Options: compress, namespace, raw. What the lines are: ../../clients_story_test.go.
require "base64"
require "dalli"
require "logger"

PORT, timeout, *OPTIONS = ARGV
TIMEOUT = timeout.delete_prefix("timeout=").to_i / 1000.0
Dalli.logger = Logger.new(IO::NULL)

def connect
  options = { socket_timeout: TIMEOUT, down_retry_delay: 1, value_max_bytes: 64 << 20 }
  options[:socket_max_failures] = 1 if TIMEOUT < 1 # else Dalli 3 asks again and again, and never tells that its time was over
  options[:compress] = OPTIONS.include?("compress")
  options[:namespace] = "app" if OPTIONS.include?("namespace")
  options[:raw] = true if OPTIONS.include?("raw")
  Dalli::Client.new("127.0.0.1:#{PORT}", options)
end

def decode(text) = text == "-" ? "".b : Base64.strict_decode64(text)
def encode(body) = body.empty? ? "-" : Base64.strict_encode64(body)
def stored(ok) = ok ? "stored" : "refused"
def done(ok) = ok ? "done" : "missing"

# Dalli 3 shows a CAS with its bytes in the machine's order, not the network's: the receipt is this. And back.
def swap(cas) = Dalli::VERSION < "5" ? [cas].pack("Q>").unpack1("Q<") : cas

# Dalli 3 takes a replace that found nothing for a success; Dalli 5's answers are the server's.
def replace(key, body)
  queue, = key.split("/")
  return "refused" if Dalli::VERSION < "5" && $client.get("#{queue}/peek").nil?

  stored($client.replace(key, decode(body)))
end

def reserve(key)
  body, receipt = $client.get_cas(key)
  receipt.to_i.zero? ? "empty" : "message #{swap(receipt)} - #{encode(body.b)}"
end

def several(keys)
  got = $client.get_multi_cas(*keys)
  ["messages", *keys.map { |key| got[key] ? "#{swap(got[key][1])} #{encode(got[key][0].b)}" : "- -" }].join(" ")
end

def values(key)
  values = [42, 1.5, true, :symbol, { "k" => [1, "two", nil] }, "text \u{e4}", Time.at(0)]
  values = ["text", "42"] if OPTIONS.include?("raw")
  values.each do |value|
    $client.set(key, value)
    got, receipt = $client.get_cas("#{key}/lease=60")
    raise "got #{got.inspect}, want #{value.inspect}" unless got == value || (got.is_a?(String) && got.b == value.b)
    raise "no ack" unless $client.delete_cas(key, receipt)
  end
  "ok"
end

def run(command, *args)
  key = args.first
  case command
  when "enqueue" then stored($client.set(key, decode(args[3]), args[1].to_i))
  when "add" then stored($client.add(key, decode(args[1])))
  when "replace" then replace(key, args[1])
  when "reserve" then reserve(key)
  when "several" then several(args)
  when "ack" then done($client.delete(key))
  when "extend" then done($client.touch(key, args[1].to_i))
  when "progress" then stored($client.set_cas(key, decode(args[2]), swap(args[1].to_i)))
  when "values" then values(key)
  when "version" then $client.version.values.first
  when "stat" then $client.stats.values.first[key]
  when "flush" then "ok"
  when "close" then $client.close || "ok"
  end
end

$client = connect
while (line = $stdin.gets)
  answer = begin
    run(*line.chomp.split(" "))
  rescue StandardError => e
    "error #{e.class}: #{e.message.tr("\n", " ")}"
  end
  $stdout.puts(answer)
  $stdout.flush
end
