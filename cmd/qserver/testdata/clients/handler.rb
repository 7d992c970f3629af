# What the workers' test does: see workers_test.go.
def work(job)
  name, action, argument = job.split(" ")
  File.write(ENV["LOG"], "#{name}\n", mode: "a")
  sleep 0.01 until action != "wait" || File.exist?(argument)
  runs = File.readlines(ENV["LOG"]).count("#{name}\n")
  raise "run #{runs} of #{name}" if action == "fail" && runs <= argument.to_i
end
