// A worker that logs in by SASL: node login.js PORT USER PASSWORD. Prints what became of a message: "body", or "refused".
const memjs = require("memjs");
const [port, username, password] = process.argv.slice(2);
const queue = memjs.Client.create(`127.0.0.1:${port}`, { username, password, retries: 0, timeout: 20, logger: { log() {} } });
(async () => {
  try {
    await queue.set("memjs", "body", {});
    const { value } = await queue.get("memjs");
    console.log((await queue.delete("memjs")) ? value.toString() : "not there");
  } catch {
    console.log("refused");
  }
  queue.close();
})();
