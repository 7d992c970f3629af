# A worker for ActiveJob: ruby activejob_worker.rb config/environment.rb QUEUE…
#
# The first argument is a Ruby file that loads the application. Of several queues those that are named first come first. A job is
# acked when it is done. What a job does not rescue or retry itself (retry_on, discard_on) makes it come again after BACKOFF seconds
# (5), then after twice as long, and so on. While it runs its lease of LEASE seconds (30) is extended, so a job may take as long as
# it takes; if this worker dies another one gets the job when the lease is over. SERVER is the server's address (127.0.0.1:11211).
# SIGTERM and SIGINT let the job at hand end, and stop.
require_relative "qserver_adapter"

abort "usage: ruby activejob_worker.rb config/environment.rb QUEUE…" if ARGV.length < 2
APPLICATION, *QUEUES = ARGV
LEASE = Integer(ENV.fetch("LEASE", 30))
BACKOFF = Integer(ENV.fetch("BACKOFF", 5))
WAIT = 3000 # ms; below the timeout of the connection
require File.expand_path(APPLICATION)

def connect = ActiveJob::QueueAdapters::QserverAdapter::Connection.new(ENV.fetch("SERVER", "127.0.0.1:11211"), 5)

# Takes the first job of the first queue that has one; if none has, waits for all of them.
def take(queue)
  QUEUES.each do |name|
    messages = queue.reserve("#{name}/lease=#{LEASE}")
    return messages if messages.any?
  end
  queue.reserve(*QUEUES.map { |name| "#{name}/t=#{WAIT}/lease=#{LEASE}" })
end

# Runs the block while a thread with a connection of its own extends the leases.
def extending(messages)
  thread = Thread.new do
    queue = nil
    loop do
      sleep LEASE / 3.0
      queue ||= connect
      messages.each { |message, _| queue.touch(message, LEASE) }
    rescue SystemCallError, IOError => e
      warn "lease: #{e.message}"
      queue = nil
    end
  end
  yield
ensure
  thread.kill.join
end

# Returns the key for delete: an ack, or a nack.
def perform(message, body)
  ActiveJob::Base.execute(JSON.parse(body))
  message
rescue StandardError, ScriptError => e
  warn e.full_message
  "#{message}/backoff=#{BACKOFF}"
end

stop = false
%w[TERM INT].each { |signal| trap(signal) { stop = true } }

queue = nil
until stop
  begin
    queue ||= connect
    messages = take(queue)
    next if messages.empty?

    extending(messages) do
      messages.each do |message, body|
        done = stop ? "#{message}/release=0" : perform(message, body)
        queue.delete(done) or warn "#{done}: the lease was over, the job will run again"
      end
    end
  rescue SystemCallError, IOError => e
    warn "#{QUEUES.first}: #{e.message}"
    queue = nil
    sleep 1
  end
end
