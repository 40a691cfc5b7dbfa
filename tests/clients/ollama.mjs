// SPDX-License-Identifier: Apache-2.0

import assert from 'node:assert/strict';
import { Ollama } from 'ollama';
import { breaks, called, failure, hundred, plain, run, weather } from './story.mjs';

const messages = [{ role: 'user', content: 'Why is the sky blue?' }];
const tools = [
  { type: 'function', function: { name: weather.name, description: weather.description, parameters: weather.schema } },
];

const open = ({ base }) => new Ollama({ host: base });

// collect reads a stream to its end and returns its text and its last part.
async function collect(stream) {
  let text = '';
  let last;
  for await (const part of stream) {
    text += part.message?.content ?? part.response;
    last = part;
  }
  assert.equal(last.done, true);
  return { text, last };
}

await run({
  async chat(story) {
    const client = open(story);
    const { model, engine } = story;
    const whole = await client.chat({ model, messages });
    const held = await collect(engine.held(() => client.chat({ model, messages, stream: true })));
    assert.equal(plain(held.text), plain(whole.message.content));
    return { whole, held };
  },

  async generate(story) {
    const client = open(story);
    const { model, engine } = story;
    const whole = await client.generate({ model, prompt: 'Why?' });
    const held = await collect(engine.held(() => client.generate({ model, prompt: 'Why?', stream: true })));
    assert.equal(plain(held.text), plain(whole.response));
    return { whole, held };
  },

  async tools(story) {
    const client = open(story);
    const { model } = story;
    const whole = await client.chat({ model, messages, tools });
    assert.deepEqual(whole.message.tool_calls[0].function.arguments, called);
    const parts = [];
    for await (const part of await client.chat({ model, messages, tools, stream: true })) {
      parts.push(...(part.message.tool_calls ?? []));
    }
    assert.deepEqual(parts, whole.message.tool_calls);
    const result = { role: 'tool', tool_name: weather.name, content: 'sunny' };
    const answer = await client.chat({ model, tools, messages: [...messages, whole.message, result] });
    plain(answer.message.content);
    return { whole, parts, answer };
  },

  async embeddings(story) {
    const client = open(story);
    const { model } = story;
    const two = await client.embed({ model, input: ['one', 'two'] });
    assert.equal(two.embeddings.length, 2);
    return { two, one: await client.embeddings({ model, prompt: 'one' }) };
  },

  async lists(story) {
    const client = open(story);
    const { model } = story;
    await client.generate({ model, prompt: 'Be there.' });
    const running = (await client.ps()).models.filter((m) => m.name.startsWith(`${model}:`));
    assert.equal(running.length, 1);
    const list = await client.list();
    assert.ok(list.models.some((m) => m.name === `${model}:latest`));
    return { list, running, shown: await client.show({ model }), version: await client.version() };
  },

  async unknown(story) {
    return failure(() => open(story).chat({ model: 'nobody-has-this', messages }));
  },

  async errors(story) {
    const client = open(story);
    const { model, engine } = story;
    await engine.fault({ kind: 'status', status: 400, message: 'this is refused' });
    const refused = await failure(() => client.chat({ model, messages }));
    await engine.fault({ kind: 'status', status: 501, message: 'this is not to be had' });
    const failed = await failure(() => client.chat({ model, messages, stream: true }));
    return { refused, failed };
  },

  async retried(story) {
    const client = open(story);
    const { model, engine } = story;
    await engine.fault({ kind: 'status', status: 503, message: 'busy for a moment' });
    const answer = await client.chat({ model, messages });
    plain(answer.message.content);
    await engine.fault({ kind: 'status', status: 500, message: 'the first word' });
    await engine.fault({ kind: 'status', status: 400, message: 'the last word', skip: 1 });
    return failure(() => client.chat({ model, messages }));
  },

  async aborted(story) {
    const client = open(story);
    const { model, engine } = story;
    let failed;
    await engine.left(
      () => client.abort(),
      async (took) => {
        failed = await failure(async () => {
          for await (const part of await client.chat({ model, messages, stream: true })) {
            took();
          }
        });
      },
    );
    assert.equal(failed.name, 'AbortError');
    return failed;
  },

  async hundred(story) {
    const client = open(story);
    const { model } = story;
    const ask = (content) => ({ model, messages: [{ role: 'user', content }] });
    return hundred(
      async (question) => (await client.chat(ask(question))).message.content,
      async (question) => (await collect(await client.chat({ ...ask(question), stream: true }))).text,
    );
  },

  async broken(story) {
    const client = open(story);
    const { model, engine } = story;
    const saw = {};
    for (const [name, fault] of Object.entries(breaks)) {
      await engine.fault(fault);
      saw[name] = await failure(async () => collect(await client.chat({ model, messages, stream: true })));
    }
    return saw;
  },
});
