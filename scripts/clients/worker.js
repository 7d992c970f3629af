// A worker in Node: node worker.js QUEUE HANDLER.js
//
// HANDLER.js exports work(job), which does one job and throws, or rejects, if it failed. A job is acked when it is done; one that
// failed comes again after BACKOFF seconds (5), then after twice as long, and so on. While it runs its lease of LEASE seconds (30)
// is extended, so a job may take as long as it takes; if this worker dies another one gets the job when the lease is over.
// SERVER is the server's address (127.0.0.1:11211). SIGTERM and SIGINT let the job at hand end, and stop.
//
// It needs memcached (npm install memcached).
'use strict';
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const Memcached = require('memcached');

if (process.argv.length !== 4) {
  console.error('usage: node worker.js QUEUE HANDLER.js');
  process.exit(64);
}
const [name, handler] = process.argv.slice(2);
const lease = Number(process.env.LEASE || 30);
const backoff = Number(process.env.BACKOFF || 5);
const { work } = require(path.resolve(handler));

// After five failures the client would leave a server alone for five hours, unless told otherwise.
const options = { retries: 0, retry: 1000, failures: Number.MAX_SAFE_INTEGER };
const queue = new Memcached(process.env.SERVER || '127.0.0.1:11211', options);

// The client never calls back when its connection breaks under a command, so each has 5 seconds.
function call(command, ...args) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${command} ${args[0]}: no answer`)), 5000);
    queue[command](...args, (error, data) => {
      clearTimeout(timer);
      error ? reject(error) : resolve(data);
    });
  });
}

let stop = false;
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { stop = true; });

async function main() {
  while (!stop) {
    try {
      // Keep the wait, here 3 seconds, below those 5.
      const key = `${name}/t=3000/lease=${lease}`;
      const data = await call('gets', key);
      if (!data) continue;
      // The client has a pool of connections, so a message is named by its receipt.
      const message = `${name}/id=${data.cas}`;
      const extender = setInterval(() => call('touch', message, lease).catch(console.error), lease * 1000 / 3);
      let end = message;
      try {
        await work(data[key]);
      } catch (e) {
        console.error(e);
        end = `${message}/backoff=${backoff}`;
      }
      clearInterval(extender);
      if (!await call('del', end)) console.error(`${end}: the lease was over, the job will run again`);
    } catch (e) {
      console.error(`${name}: ${e}`);
      await sleep(1000);
    }
  }
  queue.end();
  process.exit(); // the client may have timers left
}

main();
