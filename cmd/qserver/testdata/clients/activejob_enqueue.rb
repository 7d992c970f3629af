# Enqueues jobs for activejob_test.go: ruby activejob_enqueue.rb WHAT [ARGUMENT]…
require_relative "activejob_application"

what, *arguments = ARGV
case what
when "named" # with options of all kinds
  job = NamedJob.perform_later("plain \u{e4}")
  raise "no id" unless job.provider_job_id.to_i.positive?
  NamedJob.set(priority: 2000).perform_later("last")
  NamedJob.set(priority: 1).perform_later("first")
  NamedJob.set(queue: "critical").perform_later("critical")
  NamedJob.set(wait: 1, priority: 3000).perform_later("later")
  NamedJob.set(wait_until: Time.now - 60).perform_later("past")
  NamedJob.set(wait: 3600, priority: 3).perform_later("much later")
  begin
    NamedJob.set(queue: "a/b").perform_later("refused")
  rescue StandardError => e
    puts e.message
  end
when "long" then LongJob.perform_later(*arguments)
when "bad" then BadJob.perform_later(arguments[0], arguments[1].to_i)
when "retried" then RetriedJob.perform_later(*arguments)
when "all" # perform_all_later, which ActiveJob before 7.1 doesn't have, hands the jobs of one adapter to this
  jobs = Array.new(arguments[0].to_i) { |i| NamedJob.new("job#{i}").tap { |job| job.priority = 7 } }
  jobs.last.scheduled_at = Time.now.to_f + 3600
  count = ActiveJob::Base.queue_adapter.enqueue_all(jobs)
  refused = jobs.reject(&:successfully_enqueued?)
  puts "#{count} enqueued, #{refused.length} refused, #{refused.map { |job| job.enqueue_error.message }.uniq}"
when "idle" # the server restarts between two jobs: its end and its new start are said in lines
  NamedJob.perform_later("before")
  puts "before"
  $stdout.flush
  $stdin.gets
  NamedJob.perform_later("after")
  # Forked processes and threads have connections of their own.
  fork { NamedJob.perform_later("forked") }
  Process.wait
  Array.new(4) { |i| Thread.new { 25.times { |j| NamedJob.perform_later("thread#{i} #{j}") } } }.each(&:join)
end
