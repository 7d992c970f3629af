# A worker in Ruby: ruby worker.rb QUEUE HANDLER.rb
#
# HANDLER.rb defines work(job), which does one job and raises if it failed. A job is acked when it is done; one that failed comes
# again after BACKOFF seconds (5), then after twice as long, and so on. While it runs its lease of LEASE seconds (30) is extended,
# so a job may take as long as it takes; if this worker dies another one gets the job when the lease is over. SERVER is the server's
# address (127.0.0.1:11211). SIGTERM and SIGINT let the job at hand end, and stop.
#
# It needs Dalli, any version from 3 (ruby-dalli on Debian).
require "dalli"
require "securerandom"

abort "usage: ruby worker.rb QUEUE HANDLER.rb" unless ARGV.length == 2
NAME, HANDLER = ARGV
LEASE = Integer(ENV.fetch("LEASE", 30))
BACKOFF = Integer(ENV.fetch("BACKOFF", 5))
require File.expand_path(HANDLER)

def connect
  Dalli::Client.new(ENV.fetch("SERVER", "127.0.0.1:11211"), socket_timeout: 5, down_retry_delay: 1)
end

# Runs the block while a thread with a connection of its own extends the lease.
def extending(message)
  thread = Thread.new do
    queue = connect
    loop do
      sleep LEASE / 3.0
      queue.touch(message, LEASE)
    rescue Dalli::DalliError => e
      warn "#{message}: #{e.message}"
    end
  ensure
    queue&.close
  end
  yield
ensure
  thread.kill.join
end

stop = false
%w[TERM INT].each { |signal| trap(signal) { stop = true } }

queue = connect
until stop
  begin
    # Dalli 3 can't name a message by its receipt, but every version can by a tag. Keep the wait, here 3 seconds, below socket_timeout.
    message = "#{NAME}/n=#{SecureRandom.hex(8)}"
    job, receipt = queue.get_cas("#{message}/t=3000/lease=#{LEASE}")
    next if receipt.to_i.zero?

    begin
      extending(message) { work(job) }
      done = message
    rescue StandardError => e
      warn e.full_message
      done = "#{message}/backoff=#{BACKOFF}"
    end
    queue.delete(done) or warn "#{done}: the lease was over, the job will run again"
  rescue Dalli::DalliError => e
    warn "#{NAME}: #{e.message}"
    sleep 1
  end
end
