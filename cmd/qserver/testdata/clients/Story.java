// spymemcached, told what to do in lines: java -cp spymemcached.jar Story.java PORT timeout=MS [OPTION]…
//
// Options: binary. What the lines are: ../../clients_story_test.go.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Base64;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.CachedData;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.internal.OperationFuture;
import net.spy.memcached.transcoders.SerializingTranscoder;
import net.spy.memcached.transcoders.Transcoder;

public class Story {
    private static final int LARGEST = 64 << 20;

    // Bodies and flags as they are.
    private static final Transcoder<CachedData> PLAIN = new Transcoder<>() {
        public boolean asyncDecode(CachedData data) { return false; }
        public CachedData encode(CachedData data) { return data; }
        public CachedData decode(CachedData data) { return data; }
        public int getMaxSize() { return LARGEST; }
    };

    private final int port;
    private final long timeout;
    private final List<String> options;
    private MemcachedClient client;

    Story(String[] args) throws Exception {
        port = Integer.parseInt(args[0]);
        timeout = Long.parseLong(args[1].split("=")[1]);
        options = Arrays.asList(args).subList(2, args.length);
        open();
    }

    private void open() throws Exception {
        ConnectionFactoryBuilder builder = new ConnectionFactoryBuilder()
            .setProtocol(options.contains("binary") ? ConnectionFactoryBuilder.Protocol.BINARY : ConnectionFactoryBuilder.Protocol.TEXT)
            .setOpTimeout(timeout)
            .setMaxReconnectDelay(1)
            .setTranscoder(new SerializingTranscoder(LARGEST));
        client = new MemcachedClient(builder.build(), List.of(new InetSocketAddress("127.0.0.1", port)));
        // It connects at once, does not notice that a server closes a connection which says nothing for ten seconds, and would lose
        // its first command to that.
        client.getVersions();
    }

    private static byte[] decode(String text) { return text.equals("-") ? new byte[0] : Base64.getDecoder().decode(text); }
    private static String encode(byte[] body) { return body.length == 0 ? "-" : Base64.getEncoder().encodeToString(body); }
    private static CachedData data(String flags, String body) {
        return new CachedData(flags.equals("-") ? 0 : Integer.parseInt(flags), decode(body), LARGEST);
    }

    private <T> T await(OperationFuture<T> future) throws Exception { return future.get(timeout, TimeUnit.MILLISECONDS); }
    private String stored(OperationFuture<Boolean> future) throws Exception { return await(future) ? "stored" : "refused"; }
    private String done(OperationFuture<Boolean> future) throws Exception { return await(future) ? "done" : "missing"; }

    private String reserve(String key) {
        CASValue<CachedData> got = client.gets(key, PLAIN);
        return got == null ? "empty" : "message " + got.getCas() + " " + got.getValue().getFlags() + " " + encode(got.getValue().getData());
    }

    private String several(String... keys) {
        Map<String, CachedData> got = client.getBulk(PLAIN, keys);
        StringBuilder answer = new StringBuilder("messages");
        for (String key : keys) {
            answer.append(got.containsKey(key) ? " - " + encode(got.get(key).getData()) : " - -");
        }
        return answer.toString();
    }

    private String values(String key) throws Exception {
        Object[] values = {42, 7_000_000_000L, 1.5, true, "text \u00e4", new Date(0), new byte[] {0, -1}, "long ".repeat(20_000)};
        for (Object value : values) {
            await(client.set(key, 0, value));
            CASValue<Object> got = client.gets(key);
            if (!(value instanceof byte[] ? Arrays.equals((byte[]) value, (byte[]) got.getValue()) : value.equals(got.getValue()))) {
                return "error got " + got.getValue() + ", want " + value;
            }
            if (!await(client.delete(key + "/id=" + got.getCas()))) {
                return "error no ack";
            }
        }
        return "ok";
    }

    private String run(String line) throws Exception {
        String[] args = line.split(" ");
        switch (args[0]) {
            case "enqueue": return stored(client.set(args[1], Integer.parseInt(args[2]), data(args[3], args[4]), PLAIN));
            case "add": return stored(client.add(args[1], 0, data("-", args[2]), PLAIN));
            case "replace": return stored(client.replace(args[1], 0, data("-", args[2]), PLAIN));
            case "reserve": return reserve(args[1]);
            case "several": return several(Arrays.copyOfRange(args, 1, args.length));
            case "ack": return done(client.delete(args[1]));
            case "extend": return done(client.touch(args[1], Integer.parseInt(args[2])));
            case "progress":
                return client.cas(args[1], Long.parseLong(args[2]), data("-", args[3]), PLAIN) == CASResponse.OK ? "stored" : "refused";
            case "values": return values(args[1]);
            case "version": return client.getVersions().values().iterator().next();
            case "stat": return client.getStats().values().iterator().next().get(args[1]);
            case "flush": return "ok";
            case "close":
                client.shutdown();
                open();
                return "ok";
            default: throw new IllegalArgumentException(line);
        }
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        Logger.getLogger("net.spy").setLevel(Level.OFF);
        Story story = new Story(args);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line; (line = in.readLine()) != null;) {
            String answer;
            try {
                answer = story.run(line);
            } catch (Exception e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            out.println(answer);
            out.flush();
        }
        System.exit(0);
    }
}
