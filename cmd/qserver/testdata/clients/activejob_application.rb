# An application with ActiveJob, for activejob_test.go.
require_relative "../../../../scripts/clients/qserver_adapter"

ActiveJob::Base.logger = Logger.new(IO::NULL)
ActiveJob::Base.queue_adapter = ActiveJob::QueueAdapters::QserverAdapter.new

class Job < ActiveJob::Base
  # ActiveJob 7.1 and later have these two themselves.
  attr_accessor :enqueue_error
  attr_writer :successfully_enqueued

  def successfully_enqueued? = @successfully_enqueued

  def log(name) = File.write(ENV["LOG"], "#{name}\n", mode: "a")
  def runs(name) = File.readlines(ENV["LOG"]).count("#{name}\n")
end

class NamedJob < Job
  def perform(name) = log(name)
end

class LongJob < Job
  def perform(name, file)
    log(name)
    sleep 0.01 until File.exist?(file)
  end
end

# It fails so many times; the queue gives it back.
class BadJob < Job
  def perform(name, times)
    log(name)
    raise "run #{runs(name)} of #{name}" if runs(name) <= times
  end
end

# ActiveJob enqueues it again itself.
class RetriedJob < Job
  retry_on RuntimeError, wait: 1, attempts: 3

  def perform(name)
    log(name)
    raise "once more" if executions < 3
  end
end
