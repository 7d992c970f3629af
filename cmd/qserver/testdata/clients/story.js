// Clients for Node, told what to do in lines: node story.js PORT timeout=MS LIBRARY [OPTION]…
//
// Libraries: memcached, memjs. Option: namespace (of memcached). What the lines are: ../../clients_story_test.go.
'use strict';
const assert = require('node:assert');
const readline = require('node:readline');
const [port, timeoutOption, library, ...options] = process.argv.slice(2);
const timeout = Number(timeoutOption.split('=')[1]);

const encode = (body) => body.length === 0 ? '-' : Buffer.from(body).toString('base64');
const decode = (text) => text === '-' ? Buffer.alloc(0) : Buffer.from(text, 'base64');
const stored = (ok) => ok ? 'stored' : 'refused';
const done = (ok) => ok ? 'done' : 'missing';

// node memcached: the text protocol, over a pool of ten connections.
class NodeMemcached {
  open() {
    const Memcached = require('memcached');
    this.namespace = options.includes('namespace') ? 'app:' : ''; // gets shows it in its keys
    // The client has no time limit of its own but for connections without I/O.
    this.client = new Memcached(`127.0.0.1:${port}`, {
      namespace: this.namespace, idle: Math.min(timeout, 5000), maxValue: 64 << 20, retries: 0,
    });
  }

  close() { this.client.end(); }

  call(command, ...args) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('no answer')), timeout);
      this.client[command](...args, (error, data) => {
        clearTimeout(timer);
        error ? reject(error) : resolve(Array.isArray(data) ? [...data] : data); // the client empties its list afterwards
      });
    });
  }

  store(...args) {
    return this.call(...args).then(stored, (error) => {
      if (error.message === 'Item is not stored') return 'refused';
      throw error;
    });
  }

  enqueue(key, exptime, flags, body) { return this.store('set', key, decode(body), Number(exptime)); }
  add(key, body) { return this.store('add', key, decode(body), 0); }
  replace(key, body) { return this.store('replace', key, decode(body), 0); }
  async progress(key, receipt, body) { return stored(await this.call('cas', key, decode(body), receipt, 0)); }

  async reserve(key) {
    const data = await this.call('gets', key);
    return data ? `message ${data.cas} - ${encode(data[this.namespace + key])}` : 'empty';
  }

  async several(...keys) {
    const data = await this.call('getMulti', keys);
    return ['messages', ...keys.map((key) => key in data ? `- ${encode(data[key])}` : '- -')].join(' ');
  }

  async batch(key) {
    const list = [await this.call('gets', key)].flat();
    return ['messages', ...list.map((data) => `${data.cas} ${encode(data[this.namespace + key])}`)].join(' ');
  }

  async ack(key) { return done(await this.call('del', key)); }
  async extend(key, seconds) { return done(await this.call('touch', key, Number(seconds))); }

  async values(key) {
    for (const value of [42, 1.5, { k: [1, 'two', null] }, 'text ä €', Buffer.from(Array.from(Array(256).keys()))]) {
      await this.call('set', key, value, 0);
      const data = await this.call('gets', `${key}/lease=60`);
      assert.deepStrictEqual(data[`${this.namespace}${key}/lease=60`], value);
      assert(await this.call('del', `${key}/id=${data.cas}`));
    }
    return 'ok';
  }

  async version() {
    const [{ major, minor, bugfix }] = await this.call('version');
    return `${major}.${minor}.${bugfix}`;
  }

  async stat(name) { return (await this.call('stats'))[0][name]; }
}

// memjs: the binary protocol, all callers on one connection. It does not show the CAS.
class MemJS {
  open() {
    this.client = require('memjs').Client.create(`127.0.0.1:${port}`, { timeout: timeout / 1000, logger: { log() {} } });
  }

  close() { this.client.close(); }

  enqueue(key, exptime, flags, body) { return this.client.set(key, decode(body), { expires: Number(exptime) }).then(stored); }
  add(key, body) { return this.client.add(key, decode(body), {}).then(stored); }
  replace(key, body) { return this.client.replace(key, decode(body), {}).then(stored); }

  async reserve(key) {
    const { value, flags } = await this.client.get(key);
    return value === null ? 'empty' : `message - ${flags.readUInt32BE()} ${encode(value)}`;
  }

  async several(...keys) {
    const got = await Promise.all(keys.map((key) => this.client.get(key)));
    return ['messages', ...got.map(({ value }) => value === null ? '- -' : `- ${encode(value)}`)].join(' ');
  }

  ack(key) { return this.client.delete(key).then(done); }
  extend(key, seconds) { return this.client.touch(key, Number(seconds)).then(done); }

  async values(key) {
    for (const value of ['text ä €', '42']) {
      assert(await this.client.set(key, value, {}));
      assert.strictEqual((await this.client.get(`${key}/lease=60/n=value`)).value.toString(), value);
      assert(await this.client.delete(`${key}/n=value`));
    }
    return 'ok';
  }

  version() { return '-'; }

  stat(name) {
    return new Promise((resolve, reject) => this.client.stats((error, server, data) => error ? reject(error) : resolve(data[name])));
  }
}

const client = new { memcached: NodeMemcached, memjs: MemJS }[library]();
client.open();

async function run(line) {
  const [command, ...args] = line.split(' ');
  switch (command) {
    case 'flush': return 'ok';
    case 'close':
      client.close();
      client.open();
      return 'ok';
    default: return client[command](...args);
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const answer = await run(line).catch((error) => `error ${error.message || error}`.replaceAll('\n', ' '));
    process.stdout.write(`${answer}\n`);
  }
  process.exit();
}

main();
