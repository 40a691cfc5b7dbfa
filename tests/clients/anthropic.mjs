// SPDX-License-Identifier: Apache-2.0

import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { breaks, called, failure, hundred, plain, run, weather } from './story.mjs';

const messages = [{ role: 'user', content: 'Why is the sky blue?' }];
const tools = [{ name: weather.name, description: weather.description, input_schema: weather.schema }];

// open returns a client; maxRetries: 0 keeps it from hiding an error by asking again.
const open = ({ base }, options = {}) => new Anthropic({ baseURL: base, apiKey: 'none', ...options });

// question is what a request asks for.
const question = (model, content) => ({
  model, max_tokens: 100, messages: content ? [{ role: 'user', content }] : messages,
});

// collect reads a stream of events to its end and returns its text and the events' types.
async function collect(stream) {
  let text = '';
  const events = [];
  for await (const event of stream) {
    events.push(event.type);
    text += event.delta?.text ?? '';
  }
  return { text, events };
}

await run({
  async chat(story) {
    const { model, engine } = story;
    const client = open(story);
    const whole = await client.messages.create(question(model));
    const held = await collect(engine.held(() => client.messages.create({ ...question(model), stream: true })));
    assert.equal(plain(held.text), plain(whole.content[0].text));
    assert.equal(held.events.at(-1), 'message_stop');
    return { whole, held, joined: await client.messages.stream(question(model)).finalMessage() };
  },

  async tools(story) {
    const { model } = story;
    const client = open(story);
    const whole = await client.messages.create({ ...question(model), tools });
    const [call] = whole.content;
    assert.deepEqual(call.input, called);
    const streamed = await client.messages.stream({ ...question(model), tools }).finalMessage();
    assert.equal(streamed.stop_reason, 'tool_use');
    assert.deepEqual(streamed.content[0].input, called);
    const result = { type: 'tool_result', tool_use_id: call.id, content: 'sunny' };
    const answer = await client.messages.create({
      ...question(model), tools,
      messages: [...messages, { role: 'assistant', content: whole.content }, { role: 'user', content: [result] }],
    });
    plain(answer.content[0].text);
    return { whole, streamed, answer };
  },

  async lists(story) {
    const ids = [];
    for await (const row of open(story).models.list()) {
      ids.push(row.id);
    }
    assert.ok(ids.some((id) => id.replace(/:latest$/, '') === story.model));
    return ids;
  },

  async unknown(story) {
    const client = open(story, { maxRetries: 0 });
    return failure(() => client.messages.create(question('nobody-has-this')));
  },

  async errors(story) {
    const { model, engine } = story;
    const client = open(story, { maxRetries: 0 });
    await engine.fault({ kind: 'status', status: 400, message: 'this is refused' });
    const refused = await failure(() => client.messages.create(question(model)));
    await engine.fault({ kind: 'status', status: 501, message: 'this is not to be had' });
    const failed = await failure(() => client.messages.create({ ...question(model), stream: true }));
    return { refused, failed };
  },

  async retried(story) {
    const { model, engine } = story;
    const client = open(story, { maxRetries: 0 });
    await engine.fault({ kind: 'status', status: 503, message: 'busy for a moment' });
    const answer = await collect(await client.messages.create({ ...question(model), stream: true }));
    plain(answer.text);
    await engine.fault({ kind: 'status', status: 500, message: 'the first word' });
    await engine.fault({ kind: 'status', status: 400, message: 'the last word', skip: 1 });
    const { message, ...rest } = await failure(() => client.messages.create(question(model)));
    return { ...rest, message: JSON.parse(message.slice('400 '.length)).error.message };
  },

  async aborted(story) {
    const { model, engine } = story;
    const client = open(story);
    let stream;
    await engine.left(
      () => stream.controller.abort(),
      async (took) => {
        stream = await client.messages.create({ ...question(model), stream: true });
        for await (const _ of stream) {
          took();
        }
      },
    );
    return engine.leftWaiting((signal) => client.messages.create(question(model), { signal }));
  },

  async hundred(story) {
    const client = open(story);
    const ask = (content) => question(story.model, content);
    return hundred(
      async (content) => (await client.messages.create(ask(content))).content[0].text,
      async (content) => (await collect(await client.messages.create({ ...ask(content), stream: true }))).text,
    );
  },

  async broken(story) {
    const { model, engine } = story;
    const client = open(story);
    const saw = {};
    for (const [name, fault] of Object.entries(breaks)) {
      await engine.fault({ ...fault, form: name === 'error' ? 'event' : undefined });
      saw[name] = await failure(() => client.messages.stream(question(model)).finalMessage());
    }
    return saw;
  },
});
