# A worker that logs in by SASL: ruby login.rb PORT USER PASSWORD. Prints what became of a message: "body", or "refused".
require "dalli"
port, user, password = ARGV
Dalli.logger.level = Logger::FATAL
queue = Dalli::Client.new("127.0.0.1:#{port}", username: user, password: password)
begin
  queue.set("dalli", "body")
  got = queue.get("dalli")
  puts queue.delete("dalli") ? got : "not there"
rescue Dalli::DalliError
  puts "refused"
end
