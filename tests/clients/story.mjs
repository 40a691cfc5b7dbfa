// SPDX-License-Identifier: Apache-2.0
//
// What the scripts of all clients share. Each is run with the name of a story, the address of the engine's control port,
// and those of servers: the engine itself, the router in front of it. It tells the story to each of them. The last line
// of its output is a list of what the client saw of each, without anything that differs from run to run; a story that
// fails ends the script with an exception.

import assert from 'node:assert/strict';
import { setTimeout } from 'node:timers/promises';

// run tells the story that the command line asks for. Each story has a model of its own, named after it, so that its
// faults, its jobs and what the engine saw of it are nobody else's.
export async function run(stories) {
  const [name, control, ...servers] = process.argv.slice(2);
  assert.ok(Object.hasOwn(stories, name), `no story ${name}`);
  const saw = [];
  for (const base of servers) {
    try {
      saw.push(await stories[name]({ base, model: name, engine: new Engine(control, name) }));
    } catch (cause) {
      throw new Error(`story ${name}, told to ${base}`, { cause });
    }
  }
  console.log('\n' + JSON.stringify(saw));
}

// Engine is the demo engine's control port, for the requests of one model.
class Engine {
  constructor(control, model) {
    this.faults = `http://${control}/faults`;
    this.model = model;
  }

  // fault makes the next request go wrong and returns the fault's id.
  async fault(fault) {
    const body = JSON.stringify({ model: this.model, times: 1, ...fault });
    const resp = await fetch(this.faults, { method: 'POST', body });
    const text = await resp.text();
    assert.equal(resp.status, 200, text);
    return JSON.parse(text).ids[0];
  }

  // clear removes a fault, which ends what waits in it.
  async clear(id) {
    const resp = await fetch(`${this.faults}/${id}`, { method: 'DELETE' });
    assert.equal(resp.status, 204, await resp.text());
  }

  // held yields the chunks of a stream that the engine holds at three places until the client has all that was sent
  // before. A chunk that is kept back anywhere on the way is waited for in vain.
  async *held(open) {
    const holds = [];
    for (const after of [2, 5, 9]) {
      holds.push({ after, id: await this.fault({ kind: 'hang', at: 'mid-stream', after }) });
    }
    let n = 0;
    for await (const chunk of await open()) {
      n++;
      if (holds.length > 0 && holds[0].after === n) {
        await this.clear(holds.shift().id);
      }
      yield chunk;
    }
    assert.equal(holds.length, 0, 'the stream ended before its last hold');
  }

  // left runs a stream that leave ends when the client has its third chunk. The engine holds the fourth one back, so that
  // the stream can end in no other way. read is given a function to call for each chunk.
  async left(leave, read) {
    await this.fault({ kind: 'hang', at: 'mid-stream', after: 3 });
    let n = 0;
    await read(() => {
      if (++n === 3) {
        leave();
      }
    });
    assert.equal(n, 3, 'chunks before the end');
  }

  // leftWaiting runs a call that ends by its signal, which is given once the engine has the request and says nothing.
  async leftWaiting(call) {
    const id = await this.fault({ kind: 'hang' });
    const controller = new AbortController();
    const ended = failure(() => call(controller.signal));
    const hits = async () => (await (await fetch(this.faults)).json()).find((f) => f.id === id).hits;
    while ((await hits()) === 0) {
      await setTimeout(10);
    }
    controller.abort();
    return ended;
  }
}

// failure awaits a call that must fail and tells the error as a program sees it.
export async function failure(call) {
  try {
    await call();
  } catch (err) {
    return { type: err.constructor.name, name: err.name, status: err.status ?? err.status_code, message: err.message };
  }
  return assert.fail('no error reached the client');
}

// plain is a text of the demo engine without the digits that stand for the request: a request that asks for a stream
// is another one.
export function plain(text) {
  assert.match(text, /^\[demo engine, no model\] Request [0-9a-f]{8}\./);
  return text.replace(/Request [0-9a-f]{8}/, 'Request');
}

// hundred asks a hundred questions at once, every other one by ask and by askStream, and returns the answers. Each must
// be that of its own question.
export async function hundred(ask, askStream) {
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, i) => (i % 2 ? askStream : ask)(`question ${i}`)),
  );
  assert.equal(new Set(answers).size, 100, 'answers that differ');
  assert.equal(new Set(answers.map(plain)).size, 1, 'answers but for the digits of their request');
  return answers;
}

// weather is the tool that is offered, as JSON schema.
export const weather = {
  name: 'weather',
  description: 'the weather of a city',
  schema: {
    type: 'object',
    required: ['city', 'days'],
    properties: { city: { type: 'string' }, days: { type: 'integer' } },
  },
};

// called are the arguments with which the demo engine calls it.
export const called = { city: 'demo', days: 1 };

// breaks are the ways in which a stream ends that is not whole. The form of the error is the dialect's.
export const breaks = {
  error: { kind: 'stream-error', after: 4, message: 'the model broke' },
  cut: { kind: 'cut', at: 'mid-stream', after: 4 },
  unfinished: { kind: 'no-terminator' },
};
