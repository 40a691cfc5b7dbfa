// SPDX-License-Identifier: Apache-2.0

import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { breaks, called, failure, hundred, plain, run, weather } from './story.mjs';

const messages = [{ role: 'user', content: 'Why is the sky blue?' }];
const tools = [
  { type: 'function', function: { name: weather.name, description: weather.description, parameters: weather.schema } },
];

// open returns a client; maxRetries: 0 keeps it from hiding an error by asking again.
const open = ({ base }, options = {}) => new OpenAI({ baseURL: `${base}/v1`, apiKey: 'none', ...options });

// collect reads a chat's stream to its end and returns its text and finish reason.
async function collect(stream) {
  let text = '';
  let reason = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    reason = chunk.choices[0]?.finish_reason ?? reason;
  }
  return { text, reason };
}

await run({
  async chat(story) {
    const { model, engine } = story;
    const { completions } = open(story).chat;
    const whole = await completions.create({ model, messages });
    const held = await collect(engine.held(() => completions.create({ model, messages, stream: true })));
    assert.equal(plain(held.text), plain(whole.choices[0].message.content));
    assert.equal(held.reason, 'stop');
    const counted = completions.stream({ model, messages, stream_options: { include_usage: true } });
    return { whole, held, counted: await counted.finalChatCompletion() };
  },

  async tools(story) {
    const { model } = story;
    const { completions } = open(story).chat;
    const whole = await completions.create({ model, messages, tools });
    const [call] = whole.choices[0].message.tool_calls;
    assert.deepEqual(JSON.parse(call.function.arguments), called);
    const streamed = await completions.stream({ model, messages, tools }).finalChatCompletion();
    const [same] = streamed.choices[0].message.tool_calls;
    assert.equal(streamed.choices[0].finish_reason, 'tool_calls');
    assert.equal(same.function.name, weather.name);
    assert.deepEqual(JSON.parse(same.function.arguments), called);
    const result = { role: 'tool', tool_call_id: call.id, content: 'sunny' };
    const answer = await completions.create({
      model, tools, messages: [...messages, whole.choices[0].message, result],
    });
    plain(answer.choices[0].message.content);
    return { whole, streamed, answer };
  },

  async responses(story) {
    const { model, engine } = story;
    const { responses } = open(story);
    const whole = await responses.create({ model, input: 'Why?' });
    const events = [];
    let text = '';
    for await (const event of engine.held(() => responses.create({ model, input: 'Why?', stream: true }))) {
      events.push(event.type);
      text += event.type === 'response.output_text.delta' ? event.delta : '';
    }
    assert.equal(plain(text), plain(whole.output_text));
    assert.equal(events.at(-1), 'response.completed');
    const call = { type: 'function', name: weather.name, parameters: weather.schema, strict: false };
    const tool = await responses.create({ model, input: 'Why?', tools: [call] });
    assert.deepEqual(JSON.parse(tool.output[0].arguments), called);
    return { whole, text, events, tool };
  },

  async completions(story) {
    const { model, engine } = story;
    const { completions } = open(story);
    const whole = await completions.create({ model, prompt: 'Why?' });
    let text = '';
    for await (const chunk of engine.held(() => completions.create({ model, prompt: 'Why?', stream: true }))) {
      text += chunk.choices[0]?.text ?? '';
    }
    assert.equal(plain(text), plain(whole.choices[0].text));
    return { whole, text };
  },

  async embeddings(story) {
    const made = await open(story).embeddings.create({ model: story.model, input: ['one', 'two'] });
    assert.equal(made.data.length, 2);
    assert.ok(made.data.every(({ embedding }) => embedding.every(Number.isFinite)));
    return made;
  },

  async lists(story) {
    const rows = [];
    for await (const row of open(story).models.list()) {
      rows.push(row);
    }
    assert.ok(rows.some(({ id }) => id.replace(/:latest$/, '') === story.model));
    return { rows, one: await open(story).models.retrieve(rows[0].id) };
  },

  async unknown(story) {
    const { completions } = open(story, { maxRetries: 0 }).chat;
    return failure(() => completions.create({ model: 'nobody-has-this', messages }));
  },

  async errors(story) {
    const { model, engine } = story;
    const { completions } = open(story, { maxRetries: 0 }).chat;
    await engine.fault({ kind: 'status', status: 400, message: 'this is refused' });
    const refused = await failure(() => completions.create({ model, messages }));
    await engine.fault({ kind: 'status', status: 501, message: 'this is not to be had' });
    const failed = await failure(() => completions.create({ model, messages, stream: true }));
    return { refused, failed };
  },

  async retried(story) {
    const { model, engine } = story;
    const { completions } = open(story, { maxRetries: 0 }).chat;
    await engine.fault({ kind: 'status', status: 503, message: 'busy for a moment' });
    const answer = await collect(await completions.create({ model, messages, stream: true }));
    plain(answer.text);
    await engine.fault({ kind: 'status', status: 500, message: 'the first word' });
    await engine.fault({ kind: 'status', status: 400, message: 'the last word', skip: 1 });
    return failure(() => completions.create({ model, messages }));
  },

  async aborted(story) {
    const { model, engine } = story;
    const { completions } = open(story).chat;
    let stream;
    await engine.left(
      () => stream.controller.abort(),
      async (took) => {
        stream = await completions.create({ model, messages, stream: true });
        for await (const _ of stream) {
          took();
        }
      },
    );
    return engine.leftWaiting((signal) => completions.create({ model, messages }, { signal }));
  },

  async hundred(story) {
    const { model } = story;
    const { completions } = open(story).chat;
    const ask = (content) => ({ model, messages: [{ role: 'user', content }] });
    return hundred(
      async (question) => (await completions.create(ask(question))).choices[0].message.content,
      async (question) => (await collect(await completions.create({ ...ask(question), stream: true }))).text,
    );
  },

  async broken(story) {
    const { model, engine } = story;
    const { completions } = open(story).chat;
    const saw = {};
    for (const name of ['error', 'cut']) { // a clean end without [DONE] is an answer to this library
      await engine.fault({ ...breaks[name], form: name === 'error' ? 'data' : undefined });
      saw[name] = await failure(async () => collect(await completions.create({ model, messages, stream: true })));
    }
    return saw;
  },
});
