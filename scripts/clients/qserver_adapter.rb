# ActiveJob's queue adapter for qserver. Rails from 6.1 and Ruby from 3.0 are enough, and no gem is needed. In an initializer:
#
#   require Rails.root.join("lib/qserver_adapter")
#   Rails.application.config.active_job.queue_adapter = ActiveJob::QueueAdapters::QserverAdapter.new("127.0.0.1:11211")
#
# A job is on the server's disk when perform_later returns. wait and wait_until are the message's delay, rounded up to seconds;
# priority is its priority, lower first, 1024 if the job has none. perform_all_later is one round trip for each thousand jobs.
# activejob_worker.rb does the jobs.
require "active_job"
require "io/wait"
require "json"
require "socket"

module ActiveJob
  module QueueAdapters
    class QserverAdapter < (defined?(AbstractAdapter) ? AbstractAdapter : Object)
      BATCH = 1000 # answers that may wait unread: they must fit into the sockets' buffers

      def initialize(server = ENV.fetch("SERVER", "127.0.0.1:11211"), timeout: 5)
        @pool = Pool.new(server, timeout)
      end

      # A job in a database transaction is enqueued after its commit, as a worker would not see what it is about.
      def enqueue_after_transaction_commit? = true

      def enqueue(job)
        enqueue_at(job, nil)
      end

      def enqueue_at(job, timestamp)
        error = store([[job, timestamp]]).first
        raise error if error
      end

      # Returns how many jobs were enqueued; each job knows whether it was.
      def enqueue_all(jobs)
        jobs.each_slice(BATCH).sum do |slice|
          errors = store(slice.map { |job| [job, job.scheduled_at&.to_f] })
          slice.zip(errors) { |job, error| job.successfully_enqueued, job.enqueue_error = error.nil?, error }
          errors.count(nil)
        end
      end

      private

      # Enqueues jobs in one round trip. Returns an error, or nil, for each.
      def store(scheduled)
        messages = scheduled.map { |job, timestamp| [key(job, timestamp), JSON.generate(job.serialize)] }
        @pool.with { |connection| connection.store(messages) }.zip(scheduled).map do |answer, (job, _)|
          if (id = answer[/\AHD c(\d+)/, 1])
            job.provider_job_id = id
            nil
          else
            failure("queue #{job.queue_name}: " + (answer == "NS" ? "it is full" : answer))
          end
        end
      end

      def key(job, timestamp)
        unless job.queue_name.match?(%r{\A[^\x00-\x20\x7f/]+\z})
          raise failure("queue #{job.queue_name.inspect}: a name has no slash, blank or control character")
        end

        delay = timestamp ? (timestamp - Time.now.to_f).ceil : 0
        key = job.queue_name.dup
        key << "/delay=#{delay}" if delay.positive?
        key << "/pri=#{job.priority}" if job.priority
        key
      end

      def failure(text)
        (ActiveJob.const_defined?(:EnqueueError) ? EnqueueError : RuntimeError).new(text)
      end

      # Connections that are not in use. Threads, fibers and forked processes don't share one.
      class Pool
        def initialize(server, timeout)
          @server, @timeout, @idle, @mutex = server, timeout, [], Mutex.new
        end

        def with
          connection = @mutex.synchronize { @idle.pop }
          connection = Connection.new(@server, @timeout) unless connection&.usable?
          result = yield connection
          @mutex.synchronize { @idle.push(connection) }
          result
        end
      end

      # One connection, in memcached's text protocol.
      class Connection
        def initialize(server, timeout)
          host, _, port = server.rpartition(":")
          @socket = Socket.tcp(host, port, connect_timeout: timeout)
          @socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
          @timeout, @process, @buffer = timeout, Process.pid, String.new
        end

        # An idle connection has nothing to say: if there is something to read, the server has closed it.
        def usable? = @process == Process.pid && !@socket.wait_readable(0)

        # Sends all messages, then reads the answers.
        def store(messages)
          @socket.write(messages.map { |key, body| "ms #{key} #{body.bytesize} c\r\n#{body}\r\n" }.join)
          messages.map { line }
        end

        # Takes a message of each key that has one. Returns pairs of the message's name, QUEUE/id=RECEIPT, and its body.
        def reserve(*keys)
          @socket.write("gets #{keys.join(" ")}\r\n")
          messages = []
          while (words = line.split).first == "VALUE"
            _, key, _, size, receipt = words
            messages << ["#{key[%r{\A[^/]+}]}/id=#{receipt}", bytes(size.to_i + 2)[0...-2].force_encoding(Encoding::UTF_8)]
          end
          raise "#{keys.first}: #{words.join(" ")}" unless words == ["END"]

          messages
        end

        # Acks, or does what the key's options say.
        def delete(key) = command("delete #{key}") == "DELETED"
        def touch(key, seconds) = command("touch #{key} #{seconds}") == "TOUCHED"

        private

        def command(text)
          @socket.write("#{text}\r\n")
          line
        end

        def line
          receive until (length = @buffer.index("\n"))
          @buffer.slice!(0..length).chomp
        end

        def bytes(count)
          receive while @buffer.bytesize < count
          @buffer.slice!(0, count)
        end

        def receive
          @socket.wait_readable(@timeout) or raise IOError, "no answer from the queue server in #{@timeout} s"
          @buffer << @socket.readpartial(65_536)
        end
      end
    end
  end
end
