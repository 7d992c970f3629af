// What the workers' test does: see workers_test.go.
const fs = require('node:fs');
const { setTimeout: sleep } = require('node:timers/promises');

exports.work = async (job) => {
  const [name, action, argument] = job.split(' ');
  fs.appendFileSync(process.env.LOG, `${name}\n`);
  while (action === 'wait' && !fs.existsSync(argument)) await sleep(10);
  const runs = fs.readFileSync(process.env.LOG, 'utf8').split('\n').filter((line) => line === name).length;
  if (action === 'fail' && runs <= Number(argument)) throw new Error(`run ${runs} of ${name}`);
};
